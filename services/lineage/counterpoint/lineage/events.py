"""OpenLineage events (spec 2-0-2) as frozen values (row F1). `counterpoint.lineage.reading` makes them."""

from enum import StrEnum

from counterpoint.proto.errors import Problem
from counterpoint.proto.messages import Shape, Time
from counterpoint.recall.names import Node


class EventType(StrEnum):
    """A transition of a run; what the spec does not know is `OTHER`."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    ABORT = "ABORT"
    FAIL = "FAIL"
    OTHER = "OTHER"

    @property
    def ends(self) -> bool:
        """Whether the run is over with it."""
        return self in (EventType.COMPLETE, EventType.ABORT, EventType.FAIL)


WHOLE_TYPES = frozenset({"DAG", "APPLICATION", "COMMAND", "PROJECT", "WORKFLOW", "PIPELINE"})
"""Values of `jobType` for jobs that run others."""
WHOLE_JOBS = frozenset({("DBT", "JOB")})
"""Integrations whose plain jobs run others: a dbt invocation runs models and tests."""


class RunRef(Shape):
    """A run of a job, as the parent facet names it."""

    job: Node
    run_id: str


class DatasetUse(Shape):
    """A dataset that an event names, with its owners if it tells them."""

    node: Node
    owners: tuple[str, ...] = ()


class RunError(Shape):
    """Why a run failed. `headline` is `Class: message` as far as both are known; `stack_trace` is its end."""

    headline: str
    stack_trace: str | None = None


class Airflow(Shape):
    """What Airflow adds: whose task it was, which try, how many retries it has, where the log is.

    `map_index` tells the runs of a mapped task apart.
    """

    dag_id: str | None = None
    dag_run_id: str | None = None
    task_id: str | None = None
    try_number: int | None = None
    retries: int | None = None
    map_index: int | None = None
    log_url: str | None = None


class CodeLocation(Shape):
    """Where a job's source code is."""

    type: str | None = None
    url: str | None = None
    repo_url: str | None = None
    path: str | None = None
    version: str | None = None
    branch: str | None = None


class JobFacts(Shape):
    """What an event says about its job."""

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
    """A transition of a run. `before` and `after` are the jobs it waits for and that wait for it."""

    type: EventType
    run_id: str
    parent: RunRef | None = None
    root: RunRef | None = None
    nominal_start: Time | None = None
    nominal_end: Time | None = None
    error: RunError | None = None
    airflow: Airflow = Airflow()
    before: tuple[Node, ...] = ()
    after: tuple[Node, ...] = ()
    facts: dict[str, str] = {}

    @property
    def is_whole(self) -> bool:
        """Whether the job is of a type whose runs have parts: an Airflow DAG, a dbt invocation, a Spark application."""
        return self.job.job_type in WHOLE_TYPES or (self.job.integration, self.job.job_type) in WHOLE_JOBS


Event = RunEvent | JobEvent | DatasetEvent
