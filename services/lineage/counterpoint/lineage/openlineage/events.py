"""OpenLineage events (spec 2-0-2) as frozen values, made by `counterpoint.lineage.openlineage.parser`."""

from enum import StrEnum

from counterpoint.graph.names import Node
from counterpoint.proto.errors import Problem
from counterpoint.proto.messages import Shape, Time


class EventType(StrEnum):
    """Transition of a run; `OTHER` for values that are not in the spec."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    ABORT = "ABORT"
    FAIL = "FAIL"
    OTHER = "OTHER"

    @property
    def ends(self) -> bool:
        """Whether it ends the run."""
        return self in (EventType.COMPLETE, EventType.ABORT, EventType.FAIL)


PARENT_JOB_TYPES = frozenset({"DAG", "APPLICATION", "COMMAND", "PROJECT", "WORKFLOW", "PIPELINE"})
"""Values of `jobType` for jobs that run others."""
PARENT_INTEGRATIONS = frozenset({("DBT", "JOB")})
"""Integrations whose plain jobs run others: a dbt invocation runs models and tests."""


class RunRef(Shape):
    """A run of a job in the parent facet."""

    job: Node
    run_id: str


class DatasetUse(Shape):
    """A dataset in an event, with its owners where reported."""

    node: Node
    owners: tuple[str, ...] = ()


class RunError(Shape):
    """Error of a run. `headline` is `Class: message` as far as known; `stack_trace` is the end of the trace."""

    headline: str
    stack_trace: str | None = None


class AirflowFacts(Shape):
    """Fields of Airflow's facet: DAG, task, try number, retries and log URL.

    `map_index` distinguishes the runs of a mapped task.
    """

    dag_id: str | None = None
    dag_run_id: str | None = None
    task_id: str | None = None
    try_number: int | None = None
    retries: int | None = None
    map_index: int | None = None
    log_url: str | None = None


class CodeLocation(Shape):
    """Location of a job's source code."""

    type: str | None = None
    url: str | None = None
    repo_url: str | None = None
    path: str | None = None
    version: str | None = None
    branch: str | None = None


class JobFacts(Shape):
    """Job fields of an event."""

    node: Node
    job_type: str | None = None
    integration: str | None = None
    owners: tuple[str, ...] = ()
    code: CodeLocation | None = None


class DatasetEvent(Shape):
    """A dataset described outside any run."""

    at: Time
    dataset: DatasetUse
    ignored: tuple[Problem, ...] = ()


class JobEvent(Shape):
    """A job described outside any run."""

    at: Time
    job: JobFacts
    inputs: tuple[DatasetUse, ...] = ()
    outputs: tuple[DatasetUse, ...] = ()
    ignored: tuple[Problem, ...] = ()


class RunEvent(JobEvent):
    """A transition of a run. `before` are the jobs it waits for, `after` those that wait for it."""

    type: EventType
    run_id: str
    parent: RunRef | None = None
    root: RunRef | None = None
    nominal_start: Time | None = None
    nominal_end: Time | None = None
    error: RunError | None = None
    airflow: AirflowFacts = AirflowFacts()
    before: tuple[Node, ...] = ()
    after: tuple[Node, ...] = ()
    facts: dict[str, str] = {}

    @property
    def is_whole(self) -> bool:
        """Whether the job is of a type whose runs have parts: an Airflow DAG, a dbt invocation, a Spark application."""
        return self.job.job_type in PARENT_JOB_TYPES or (self.job.integration, self.job.job_type) in PARENT_INTEGRATIONS


OpenLineageEvent = RunEvent | JobEvent | DatasetEvent
