"""Models of records: what memory demands of a body before it writes it, by store, and all that other services than the
writer may count on."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import StringConstraints, ValidationError

from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Problem
from counterpoint.proto.incident_settings import StoredIncidentSettings
from counterpoint.proto.line import Action
from counterpoint.proto.links import Link
from counterpoint.proto.messages import Id, ProjectName, Shape, Time
from counterpoint.proto.principals import Principal
from counterpoint.proto.providers import Provider
from counterpoint.proto.tasks import Task
from counterpoint.proto.upcast import upcast
from counterpoint.proto.validation import faults

NAMED_LIMIT = 20
"""At most so many fields are named of one body."""


class Session(Shape):
    """The record of a session: its latest tasks, and one line about each of them as `summary`, newest last."""

    session_id: Id
    project: ProjectName
    task_ids: tuple[Id, ...]
    summary: str
    opened_at: Time
    continued_at: Time


class Named(Shape):
    """Of a job or a dataset, what others than lineage read."""

    namespace: str
    name: str
    owners: tuple[str, ...] = ()


class RunOf(Shape):
    """Of a run, the same; `job` is the reference of its node."""

    run_id: str
    job: str


class Ends(Shape):
    """Of an edge, the same: references of nodes."""

    kind: str
    source: str
    target: str


RevocationId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


class Revocation(Shape):
    """A capability that counts no more, under its revocation id: who ended it, when and why."""

    revocation_id: RevocationId
    reason: str
    revoked_by: str
    revoked_at: Time


MODELS: Mapping[str, type[Shape]] = {
    "actions": Action,
    "attempts": Attempt,
    "datasets": Named,
    "decisions": DecisionMade,
    "edges": Ends,
    "incident_settings": StoredIncidentSettings,
    "jobs": Named,
    "links": Link,
    "principals": Principal,
    "providers": Provider,
    "revocations": Revocation,
    "runs": RunOf,
    "sessions": Session,
    "tasks": Task,
}
"""By store, the model of its records."""

OF_ONE_OWNER: Mapping[str, str] = {
    **dict.fromkeys(
        ("documents", "ingests", "chunks", "entities", "relationships", "audit", "projections"),
        "memory alone makes them",
    ),
    **dict.fromkeys(("quarantines", "erasures", "dead_letters", "releases"), "memory looks at them as wishes"),
    **dict.fromkeys(
        ("submissions", "webhook_deliveries", "sync_cursors", "incidents", "routes", "checkpoints", "calibration"),
        "read by the service that writes them",
    ),
    **dict.fromkeys(("spend", "model_calls"), "read by the gateway that writes them, and as totals"),
    **dict.fromkeys(("plans", "approvals"), "nothing yet"),
    **dict.fromkeys(("coder_memory", "planner_memory", "judge_memory"), "texts, with whatever stands beside"),
}
"""The stores without a model, and why they need none."""


def shaped(shape: type[Shape], body: Mapping[str, Any], version: int) -> dict[str, Any]:
    """A body as its model takes it: with the record's version where the model has one."""
    return {**body, **({"version": version} if "version" in shape.model_fields else {})}


def unfit(store: str, body: Mapping[str, Any], schema_version: int) -> tuple[Problem, ...]:
    """What is wrong with a body for its store, by field; nothing for a store without a model.

    A body of an earlier schema is judged as what it becomes, one of a later release as this release reads it.
    """
    shape = MODELS.get(store)
    if shape is None:
        return ()
    _, present = upcast(store, schema_version, dict(body))
    try:
        shape.model_validate(shaped(shape, present, 1))
    except ValidationError as error:
        return faults(present, error)[:NAMED_LIMIT]
    return ()
