"""Plans: documents about missing providers, artifacts of tasks, and records of plans."""

from counterpoint.proto.messages import Id, Shape, Time


class PlanDocument(Shape):
    """The plan of a `system` without a provider, as a document under `path`."""

    path: str
    system: str
    text: str


class Artifact(Shape):
    """A document that agents made for a task. `document_id` is its id once it is stored under `path`; `sha256` that of
    its text."""

    path: str
    document_id: Id
    sha256: str


class PlanRecord(Shape):
    """A record of `plans`: the plan of a task, or with a `path` the document about a `system` without a provider."""

    plan_id: Id
    task_id: Id
    attempt: int
    text: str
    systems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    path: str | None = None
    system: str | None = None
    at: Time


class PlanNote(Shape):
    """A record of `planner_memory`: what the plan of a task came to. `outcome` is that of its task, or the one that was
    reported since."""

    task_id: Id
    text: str
    outcome: str
    systems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    at: Time
