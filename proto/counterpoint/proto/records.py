"""Models of records by store: memory validates each body by them before writing, and readers may rely on them."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import StringConstraints, ValidationError

from counterpoint.proto.approvals import Approval
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.delegations import Delegation
from counterpoint.proto.errors import Problem
from counterpoint.proto.incident_settings import StoredIncidentSettings
from counterpoint.proto.limits import StoredLimit, StoredOrganisationLimit
from counterpoint.proto.line import Action
from counterpoint.proto.links import Link
from counterpoint.proto.messages import Shape, Time
from counterpoint.proto.principals import Principal
from counterpoint.proto.providers import Provider
from counterpoint.proto.sessions import SessionRecord
from counterpoint.proto.tasks import Task
from counterpoint.proto.upcast import upcast
from counterpoint.proto.validation import field_problems

PROBLEMS_LIMIT = 20
"""Maximum number of problems reported for one body."""


class OwnedNode(Shape):
    """The fields of a job or dataset that services other than lineage read."""

    namespace: str
    name: str
    owners: tuple[str, ...] = ()


class RunJob(Shape):
    """The fields of a run that services other than lineage read; `job` is a node reference."""

    run_id: str
    job: str


class EdgeEnds(Shape):
    """The fields of an edge that services other than lineage read, with node references."""

    kind: str
    source: str
    target: str


RevocationId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


class Revocation(Shape):
    """A revoked capability by its revocation id."""

    revocation_id: RevocationId
    reason: str
    revoked_by: str
    revoked_at: Time


MODELS: Mapping[str, type[Shape]] = {
    "actions": Action,
    "approvals": Approval,
    "attempts": Attempt,
    "datasets": OwnedNode,
    "decisions": DecisionMade,
    "edges": EdgeEnds,
    "incident_settings": StoredIncidentSettings,
    "jobs": OwnedNode,
    "limits": StoredLimit,
    "delegations": Delegation,
    "links": Link,
    "organisation_limits": StoredOrganisationLimit,
    "principals": Principal,
    "providers": Provider,
    "revocations": Revocation,
    "runs": RunJob,
    "sessions": SessionRecord,
    "tasks": Task,
}
"""The model of each store's records."""


def with_version(shape: type[Shape], body: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return a body for its model, with the record's version if the model has that field."""
    return {**body, **({"version": version} if "version" in shape.model_fields else {})}


def body_problems(store: str, body: Mapping[str, Any], schema_version: int) -> tuple[Problem, ...]:
    """Return the problems of a body by field; none for a store without a model.

    A body of an earlier schema version is upcast first; one of a later release is validated as read by this one.
    """
    shape = MODELS.get(store)
    if shape is None:
        return ()
    _, present = upcast(store, schema_version, dict(body))
    try:
        shape.model_validate(with_version(shape, present, 1))
    except ValidationError as error:
        return field_problems(present, error)[:PROBLEMS_LIMIT]
    return ()
