"""Failed runs, and what shows that one is over: which flow a run belongs to, and which success came after it."""

import hashlib
from collections.abc import Iterable

from counterpoint.lineage.events import EventType, RunEvent
from counterpoint.lineage.records import Run
from counterpoint.proto.messages import Shape, Time
from counterpoint.proto.signature import signature

NO_MESSAGE = "failed without an error message"


class FailedRun(Shape):
    """One failing of a run; every try is one. Jobs are given as `Node.ref`.

    `flow` is the run id of the whole it was part of (of Airflow the DAG run), `dag_run_id` Airflow's own name of that:
    a DAG run made again for the same date keeps the first and changes the second. `within` are the jobs it is part of,
    `whole`: it may have parts of its own, as far as its type says. `statement`: it is one statement of the job, which
    the producer reports as a job of its own. `told`: there is an error. `known_at` is when lineage received it.
    `waited`: the grace is over. `over_at` is the end of the earliest run that shows it is over, `over_by` that run;
    `passed`: a further try of the same flow did.
    """

    job: str
    run_id: str
    at: Time
    flow: str
    parent_run_id: str | None = None
    dag_run_id: str | None = None
    map_index: int | None = None
    within: tuple[str, ...] = ()
    whole: bool = False
    statement: bool = False
    told: bool = True
    signature: str
    nominal_start: Time | None = None
    try_number: int | None = None
    retries: int | None = None
    log_url: str | None = None
    known_at: Time | None = None
    waited: bool = False
    over_at: Time | None = None
    over_by: str | None = None
    passed: bool = False

    @property
    def id(self) -> str:
        """The same for the same event, however often it comes."""
        said = "\x1f".join((self.job, self.run_id, self.at.isoformat()))
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    @property
    def retries_left(self) -> bool:
        """Whether the task is going to be tried again, as far as is known."""
        return self.try_number is not None and self.retries is not None and self.try_number <= self.retries

    @property
    def links(self) -> frozenset[str]:
        """The runs that make one flow with it: itself, its parent, and the whole."""
        return frozenset(run for run in (self.run_id, self.parent_run_id, self.flow) if run)

    def judged(self, successes: Iterable[Run]) -> "FailedRun":
        """The failure with the earliest success that shows it is over, if one of these is earlier than the known."""
        best = self
        for run in successes:
            end = run.ended_at
            if end is None or not shows_over(run, self):
                continue
            if best.over_at is None or (end, run.run_id) < (best.over_at, best.over_by or ""):
                passed = self.retries_left and flow_of(run) == self.flow and run.run_id != self.run_id
                best = self.model_copy(update={"over_at": end, "over_by": run.run_id, "passed": passed})
        return best


class Failure(Shape):
    """A failed run with its error."""

    run: FailedRun
    error_message: str


def failure_of(event: RunEvent, run: Run) -> Failure:
    """The failure that a FAIL event reports; what the event leaves out is taken from the run's record."""
    said = {
        "ended_at": event.at,
        "ended_as": EventType.FAIL,
        "error_message": event.error.headline if event.error else run.error_message,
        "nominal_start": event.nominal_start or run.nominal_start,
        "dag_run_id": event.airflow.dag_run_id or run.dag_run_id,
        "try_number": event.airflow.try_number or run.try_number,
        "log_url": event.airflow.log_url or run.log_url,
    }
    return _failure(run.model_copy(update=said), event.at)


def flow_of(run: Run) -> str:
    """The run id of the whole that a run is part of."""
    return run.root_run_id or run.parent_run_id or run.run_id


def shows_over(success: Run, failed: FailedRun) -> bool:
    """Whether a completed run of the same job shows that this failure is over.

    It must have completed after the failing, and be the same run again, a later try or a repetition of the same flow,
    or a later run; an older one that took longer shows nothing, nor does another part of a mapped task.
    """
    at = success.ended_at
    if success.state is not EventType.COMPLETE or at is None or at <= failed.at or success.job != failed.job:
        return False
    if success.run_id == failed.run_id:
        return True
    if flow_of(success) == failed.flow:
        if None not in (success.dag_run_id, failed.dag_run_id) and success.dag_run_id != failed.dag_run_id:
            return True
        if success.map_index != failed.map_index:
            return False
        if success.try_number is None or failed.try_number is None:
            return True
        return success.try_number > failed.try_number
    ours, theirs = success.nominal_start, failed.nominal_start
    if ours is not None and theirs is not None and ours != theirs:
        return ours > theirs
    return success.started_at is None or success.started_at > failed.at


def is_statement(job: str, parent: str) -> bool:
    """Whether a job is a numbered statement of another: `model.shop.orders.sql.2` is one of `model.shop.orders`."""
    return job.startswith(f"{parent}.sql.") and job.removeprefix(f"{parent}.sql.").isdecimal()


def _failure(run: Run, at: Time) -> Failure:
    message = run.error_message or NO_MESSAGE
    statement = run.parent is not None and is_statement(run.job, run.parent)
    job = run.parent if statement and run.parent else run.job
    within = tuple(dict.fromkeys(whole for whole in (run.parent, run.root) if whole is not None and whole != job))
    failed = FailedRun(
        job=job,
        run_id=run.run_id,
        at=at,
        flow=flow_of(run),
        parent_run_id=run.parent_run_id,
        dag_run_id=run.dag_run_id,
        map_index=run.map_index,
        within=within,
        whole=bool(run.whole),
        statement=statement,
        told=run.error_message is not None,
        signature=signature(message).digest,
        nominal_start=run.nominal_start,
        try_number=run.try_number,
        retries=run.retries,
        log_url=run.log_url,
    )
    return Failure(run=failed, error_message=message)
