"""The lineage graph as records of the stores `jobs`, `runs`, `datasets` and `edges`, and the merge of two records.

The merge is commutative, associative and idempotent, so the records do not depend on the order or repetition of
events. Sets only grow, up to a limit. Of other fields the value with the greatest stamp (event time, then transition)
is kept; a field missing in an event is unchanged.
"""

import json
from typing import ClassVar, Literal

from counterpoint.graph.edges import LineageEdge
from counterpoint.lineage.openlineage.events import CodeLocation, EventType
from counterpoint.lineage.openlineage.run_facts import FACTS_LIMIT
from counterpoint.lineage.sizes import shortest
from counterpoint.proto.messages import Shape, Time

_FACT = "facts "
"""Prefix of a fact in `stamps`."""
SET_LIMIT_CHARS = 80_000
"""Maximum length of a set of names in a record, the shortest ones."""

GraphStore = Literal["jobs", "runs", "datasets", "edges"]
RecordKey = tuple[GraphStore, str]
"""A record's store and id."""


class StampedRecord(Shape):
    """A merged record: `stamps` orders the values of each single-valued field; fields in `SETS` only grow."""

    SETS: ClassVar[tuple[str, ...]] = ()
    stamps: dict[str, str] = {}


class RunMark(Shape):
    """A run and the time of its event."""

    run_id: str
    at: Time


class JobRecord(StampedRecord):
    """A job. `parent` is the job it is part of; `last_success` and `last_failure` the latest COMPLETE and FAIL."""

    namespace: str
    name: str
    job_type: str | None = None
    owners: tuple[str, ...] = ()
    code: CodeLocation | None = None
    parent: str | None = None
    last_success: RunMark | None = None
    last_failure: RunMark | None = None


class DatasetRecord(StampedRecord):
    """A dataset."""

    namespace: str
    name: str
    owners: tuple[str, ...] = ()


class RunRecord(StampedRecord):
    """A run; for Airflow each try is one. Jobs and datasets are given as `Node.ref`.

    `state` is how it ended (COMPLETE, FAIL, ABORT), or RUNNING while its latest START is later than any end.
    `error_message` and `stack_trace` are those of its latest failure, and stay when the same run id later succeeds.
    `facts` are the versions, settings and figures that events reported, by kind and name. `incident` is the
    incident that its failure belongs to.
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


GraphRecord = JobRecord | DatasetRecord | RunRecord | LineageEdge
"""A record of the lineage graph; edges are as `counterpoint.graph.edges` has them."""

SHAPES: dict[GraphStore, type[GraphRecord]] = {
    "jobs": JobRecord,
    "runs": RunRecord,
    "datasets": DatasetRecord,
    "edges": LineageEdge,
}
"""Model of the records of each store."""


def merge_records(first: GraphRecord, second: GraphRecord) -> GraphRecord:
    """Merge two records of the same type and id."""
    if isinstance(first, LineageEdge) or isinstance(second, LineageEdge):
        return first
    values: dict[str, object] = {}
    for field in type(first).model_fields:
        first_facts, second_facts = getattr(first, field), getattr(second, field)
        if field in first.SETS:
            values[field] = shortest((*first_facts, *second_facts), SET_LIMIT_CHARS)
        elif field == "facts":
            values[field] = _facts(first, second, first_facts, second_facts)
        elif field != "stamps" and _rank(second, field) > _rank(first, field):
            values[field] = second_facts
    facts = values.get("facts")
    stamps = {
        field: max(first.stamps.get(field, ""), second.stamps.get(field, ""))
        for field in first.stamps | second.stamps
        if not isinstance(facts, dict) or not field.startswith(_FACT) or field.removeprefix(_FACT) in facts
    }
    merged = first.model_copy(update={**values, "stamps": stamps})
    return merged.model_copy(update={"state": _state(merged)}) if isinstance(merged, RunRecord) else merged


def _facts(
    first: StampedRecord, second: StampedRecord, first_facts: dict[str, str], second_facts: dict[str, str]
) -> dict[str, str]:
    """Merge facts; of one name the value with the greater stamp is kept."""
    names = sorted({*first_facts, *second_facts})[:FACTS_LIMIT]
    ranks = ((name, (first.stamps.get(fact_stamp(name), ""), first_facts.get(name, ""))) for name in names)
    return {
        name: max(rank, (second.stamps.get(fact_stamp(name), ""), second_facts.get(name, "")))[1]
        for name, rank in ranks
    }


def fact_stamp(fact: str) -> str:
    """Key of a fact in `stamps`."""
    return f"{_FACT}{fact}"


def _rank(record: StampedRecord, field: str) -> tuple[str, str]:
    """Sort key of a field's value: its stamp, then the value itself."""
    stamp = record.stamps.get(field, "")
    return stamp, json.dumps(record.model_dump(mode="json", include={field}), sort_keys=True) if stamp else ""


def _state(run: RunRecord) -> EventType:
    if run.ended_as is None or run.ended_at is None:
        return EventType.RUNNING
    reopened = run.started_at is not None and run.started_at > run.ended_at
    return EventType.RUNNING if reopened else run.ended_as
