"""The failure that a task reports, as it is compared with earlier ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from counterpoint.developer.evidence.likeness import rules_out, words_of_error
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.signature import Signature, headline, signature
from counterpoint.proto.tasks import JobRef, SubmitTask

QUERY_CHARS = 2_000
"""Longest part of a text that is searched for."""
LAST_LINES = 10
"""Lines at the end of an error that may hold the cause, where its headline does not."""


@dataclass(frozen=True)
class Failure:
    """A failure: the words of its report, its error, and where it happened.

    `text` is title, description and error; `error` the part of the error message that may name the cause: the
    exception and its message, or the last lines where those name none. `rules_out`: the report says that a usual cause
    is none.
    """

    text: str
    error: str | None = None
    signature: Signature | None = None
    job: JobRef | None = None
    systems: frozenset[str] = frozenset()
    error_words: frozenset[str] = field(default=frozenset())
    rules_out: bool = False

    @property
    def digest(self) -> str | None:
        """The digest of its signature, if there is an error message."""
        return self.signature.digest if self.signature else None

    @property
    def generic(self) -> bool:
        """Whether its template names no cause."""
        return self.signature is not None and self.signature.generic

    def same_template(self, other: "Failure") -> bool:
        """Whether both have an error message and it is the same but for its parameters."""
        return self.digest is not None and self.digest == other.digest

    def same_job(self, other: "Failure") -> bool:
        """Whether both name the same job."""
        return self.job is not None and self.job == other.job

    def same_system(self, other: "Failure") -> bool:
        """Whether both name the same job, or one system in common."""
        return self.same_job(other) or bool(self.systems & other.systems)

    def elsewhere(self, other: "Failure") -> bool:
        """Whether both name a job, or else a system, and not the same one."""
        if self.job is not None and other.job is not None:
            return self.job != other.job
        return bool(self.systems and other.systems) and not self.systems & other.systems

    def common_code(self, other: "Failure") -> str | None:
        """The first error code, or else the exception class, that both have."""
        if self.signature is None or other.signature is None:
            return None
        for code in self.signature.codes:
            if code in other.signature.codes:
                return code
        mine = self.signature.error_class
        return mine if mine is not None and mine == other.signature.error_class else None


def failure_of_task(task: SubmitTask) -> Failure:
    """The failure that a task reports.

    The sentences of a task that lineage has made of events are its own, the same for every incident but for names and
    times: only the job and the error say anything about the failure.
    """
    job = task.target.job if task.target else None
    if job and task.task_id is not None and (task.context or {}).get("incident_id") == task.task_id:
        return _failure(None, job.name, task.error_message, task.systems, job)
    return _failure(task.title, task.description, task.error_message, task.systems, job)


def failure_of_attempt(attempt: Attempt) -> Failure:
    """The failure that an earlier attempt was made at; without an error message its recorded signature counts."""
    made = _failure(attempt.title, attempt.description, attempt.error_message, attempt.systems, attempt.job)
    if made.signature is None and attempt.error_signature is not None:
        recorded = Signature(error_class=None, text="", digest=attempt.error_signature)
        return replace(made, signature=recorded)
    return made


def differences(earlier: Failure, now: Failure) -> tuple[str, ...]:
    """The facts by which two failures can be told apart, as `then ..., now ...`."""
    said: list[str] = []
    pairs: Mapping[str, tuple[str | None, str | None]] = {
        "error": (_first_line(earlier.error), _first_line(now.error)),
        "job": (_job(earlier.job), _job(now.job)),
        "system": (", ".join(sorted(earlier.systems)) or None, ", ".join(sorted(now.systems)) or None),
    }
    for name, (then, today) in pairs.items():
        if then and then != today:
            said.append(f"{name} then: {then}; now: {today}" if today else f"{name} then: {then}")
    return tuple(said)


def _failure(
    title: str | None, description: str, error: str | None, systems: tuple[str, ...], job: JobRef | None
) -> Failure:
    signed = signature(error) if error else None
    cause = _cause(error, signed) if error and signed else None
    words = [title if title and title not in description else None, description, cause]
    return Failure(
        text="\n".join(word[:QUERY_CHARS] for word in words if word),
        error=cause[:QUERY_CHARS] if cause else None,
        signature=signed,
        job=job,
        systems=frozenset(system.casefold() for system in systems),
        error_words=words_of_error(cause),
        rules_out=rules_out(f"{title or ''}\n{description}"),
    )


def _cause(error: str, signed: Signature) -> str:
    error_class, message = headline(error)
    named = f"{error_class}: {message}" if error_class else message
    if not signed.generic:
        return named
    last = [line.strip() for line in error.splitlines() if line.strip()][-LAST_LINES:]
    telling = [line for line in last if not signature(line).generic]
    return "\n".join(telling) or named


def _first_line(text: str | None) -> str | None:
    return text.strip().splitlines()[0][:200] if text and text.strip() else None


def _job(job: JobRef | None) -> str | None:
    return f"{job.namespace}/{job.name}" if job else None
