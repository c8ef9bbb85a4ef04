"""Failed runs: the flow a run belongs to, and the success that resolves it."""

import hashlib
from collections.abc import Iterable

from counterpoint.lineage.openlineage.events import EventType, RunEvent
from counterpoint.lineage.records import RunRecord
from counterpoint.proto.messages import Shape, Time
from counterpoint.proto.signature import signature

NO_MESSAGE = "failed without an error message"


class FailedRun(Shape):
    """One failure of a run; every try is one. Jobs are given as `Node.ref`.

    `flow` is the run id of the parent run (in Airflow the DAG run), `dag_run_id` Airflow's name of it: a DAG run
    repeated for the same date keeps the first and changes the second. `within` are the jobs it is part of. `whole`: its
    job type may have parts. `statement`: it is one statement of the job, which the producer reports as a separate job.
    `told`: the event has an error. `known_at` is the time of receipt. `waited`: the grace period is over. `over_at` is
    the end of the earliest run that resolves it, `over_by` that run; `passed`: a retry in the same flow resolves it.
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
        """Id derived from the event, equal for its redeliveries."""
        identity = "\x1f".join((self.job, self.run_id, self.at.isoformat()))
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    @property
    def retries_left(self) -> bool:
        """Whether the producer will retry the task, as far as reported."""
        return self.try_number is not None and self.retries is not None and self.try_number <= self.retries

    @property
    def links(self) -> frozenset[str]:
        """Run ids that belong to one flow: the run, its parent, and the root."""
        return frozenset(run for run in (self.run_id, self.parent_run_id, self.flow) if run)

    def resolved_by(self, successes: Iterable[RunRecord]) -> "FailedRun":
        """Return the failure with the earliest success that resolves it, of these and the one known."""
        best = self
        for run in successes:
            end = run.ended_at
            if end is None or not resolves(run, self):
                continue
            if best.over_at is None or (end, run.run_id) < (best.over_at, best.over_by or ""):
                passed = self.retries_left and flow_of(run) == self.flow and run.run_id != self.run_id
                best = self.model_copy(update={"over_at": end, "over_by": run.run_id, "passed": passed})
        return best


class FailureReport(Shape):
    """A failed run with its error message."""

    run: FailedRun
    error_message: str


def failure_report(event: RunEvent, run: RunRecord) -> FailureReport:
    """Return the failure of a FAIL event; missing fields are taken from the record of the run."""
    identity = {
        "ended_at": event.at,
        "ended_as": EventType.FAIL,
        "error_message": event.error.headline if event.error else run.error_message,
        "nominal_start": event.nominal_start or run.nominal_start,
        "dag_run_id": event.airflow.dag_run_id or run.dag_run_id,
        "try_number": event.airflow.try_number or run.try_number,
        "log_url": event.airflow.log_url or run.log_url,
    }
    return _failure(run.model_copy(update=identity), event.at)


def flow_of(run: RunRecord) -> str:
    """Run id of the root or parent of a run, else its own."""
    return run.root_run_id or run.parent_run_id or run.run_id


def resolves(success: RunRecord, failed: FailedRun) -> bool:
    """Whether a completed run of the same job resolves a failure.

    It must have completed after the failure, and be the same run, a later try or repetition of the same flow, or a
    later run. An earlier run that took longer does not resolve it, and neither does another part of a mapped task.
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
    own_start, failed_start = success.nominal_start, failed.nominal_start
    if own_start is not None and failed_start is not None and own_start != failed_start:
        return own_start > failed_start
    return success.started_at is None or success.started_at > failed.at


def is_statement(job: str, parent: str) -> bool:
    """Whether a job is a numbered statement of another: `model.shop.orders.sql.2` is one of `model.shop.orders`."""
    return job.startswith(f"{parent}.sql.") and job.removeprefix(f"{parent}.sql.").isdecimal()


def _failure(run: RunRecord, at: Time) -> FailureReport:
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
    return FailureReport(run=failed, error_message=message)
