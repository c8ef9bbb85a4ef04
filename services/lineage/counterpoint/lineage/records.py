"""The lineage graph as records of the stores `jobs`, `runs`, `datasets` and `edges`, and how two of a kind join.

Joining is commutative, associative and idempotent: whatever the order of the events, and however often one comes, the
records are the same. Sets only grow; of other fields the value with the greatest stamp (event time, then transition)
stays, and an event that says nothing of a field leaves it alone.
"""

import json
from typing import ClassVar, Literal

from counterpoint.lineage.events import CodeLocation, EventType
from counterpoint.proto.messages import Shape, Time
from counterpoint.recall.edges import Edge

Store = Literal["jobs", "runs", "datasets", "edges"]
Key = tuple[Store, str]
"""A record's store and id."""


class Stamped(Shape):
    """A record that grows: `stamps` says of each single-valued field when it was said, and `SETS` only get larger."""

    SETS: ClassVar[tuple[str, ...]] = ()
    stamps: dict[str, str] = {}


class Mark(Shape):
    """A run, and the time of the event that told of it."""

    run_id: str
    at: Time


class Job(Stamped):
    """A job. `parent` is the job it is part of; `last_success` and `last_failure` the latest COMPLETE and FAIL."""

    namespace: str
    name: str
    job_type: str | None = None
    owners: tuple[str, ...] = ()
    code: CodeLocation | None = None
    parent: str | None = None
    last_success: Mark | None = None
    last_failure: Mark | None = None


class Dataset(Stamped):
    """A dataset."""

    namespace: str
    name: str
    owners: tuple[str, ...] = ()


class Run(Stamped):
    """A run; for Airflow each try is one. Jobs and datasets are given as `Node.ref`.

    `state` is how it ended (COMPLETE, FAIL, ABORT), or RUNNING while its latest START is later than any end.
    `error_message` and `stack_trace` are those of its latest failure, and stay when the same run id later succeeds.
    `facts` are the versions, settings and figures that events reported, by kind and name. `incident` is the one that
    its failure was taken for first.
    """

    SETS: ClassVar[tuple[str, ...]] = ("inputs", "outputs")

    run_id: str
    job: str
    state: EventType = EventType.RUNNING
    started_at: Time | None = None
    ended_at: Time | None = None
    ended_as: EventType | None = None
    parent: str | None = None
    parent_run_id: str | None = None
    root: str | None = None
    root_run_id: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nominal_start: Time | None = None
    nominal_end: Time | None = None
    error_message: str | None = None
    stack_trace: str | None = None
    integration: str | None = None
    whole: bool | None = None
    facts: dict[str, str] = {}
    incident: str | None = None
    dag_run_id: str | None = None
    try_number: int | None = None
    retries: int | None = None
    map_index: int | None = None
    log_url: str | None = None


Record = Job | Dataset | Run | Edge
"""A record of the lineage graph; edges are as `counterpoint.recall.edges` has them."""

SHAPES: dict[Store, type[Record]] = {"jobs": Job, "runs": Run, "datasets": Dataset, "edges": Edge}
"""The shape of each store's records."""


def join(one: Record, other: Record) -> Record:
    """Both records in one. They must be of the same shape and id."""
    if isinstance(one, Edge) or isinstance(other, Edge):
        return one
    values: dict[str, object] = {}
    for field in type(one).model_fields:
        mine, theirs = getattr(one, field), getattr(other, field)
        if field in one.SETS:
            values[field] = tuple(sorted({*mine, *theirs}))
        elif field == "facts":
            values[field] = _facts(one, other, mine, theirs)
        elif field != "stamps" and _rank(other, field) > _rank(one, field):
            values[field] = theirs
    stamps = {field: max(one.stamps.get(field, ""), other.stamps.get(field, "")) for field in one.stamps | other.stamps}
    joined = one.model_copy(update={**values, "stamps": stamps})
    return joined.model_copy(update={"state": _state(joined)}) if isinstance(joined, Run) else joined


def _facts(one: Stamped, other: Stamped, mine: dict[str, str], theirs: dict[str, str]) -> dict[str, str]:
    """The facts of both; of one name the one with the greater stamp."""
    names = sorted({*mine, *theirs})
    ranks = ((name, (one.stamps.get(stamp_of(name), ""), mine.get(name, ""))) for name in names)
    return {name: max(rank, (other.stamps.get(stamp_of(name), ""), theirs.get(name, "")))[1] for name, rank in ranks}


def stamp_of(fact: str) -> str:
    """The name that a fact has among the stamps."""
    return f"facts {fact}"


def _rank(record: Stamped, field: str) -> tuple[str, str]:
    """How strong a field's value is: its stamp, and to break a tie the value itself."""
    stamp = record.stamps.get(field, "")
    return stamp, json.dumps(record.model_dump(mode="json", include={field}), sort_keys=True) if stamp else ""


def _state(run: Run) -> EventType:
    if run.ended_as is None or run.ended_at is None:
        return EventType.RUNNING
    reopened = run.started_at is not None and run.started_at > run.ended_at
    return EventType.RUNNING if reopened else run.ended_as
