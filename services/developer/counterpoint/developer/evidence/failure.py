"""The failure of a task, in the form in which failures are compared."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from counterpoint.developer.evidence.likeness import rules_out, words_of_error
from counterpoint.developer.language.codes import is_telling
from counterpoint.developer.language.words import content_sequence, content_words
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.signature import Signature, headline, parameters, signature, without_status
from counterpoint.proto.tasks import JobRef, SubmitTask

QUERY_CHARS = 2_000
"""Maximum length of a searched text."""
LAST_LINES = 10
"""Last lines of an error to use if its headline has no cause."""
BEGINNING_WORDS = 4
"""Minimum number of words of a common beginning of two messages."""
SHOWN_CHARS = 200
"""Maximum length of a difference."""
_VALUE = re.compile(r"\"[^\"]*\"|'[^']*'|<[^<>]*>|\([^()]{0,3}\)")
_MESSAGE_WORD = re.compile(r"[^\W\d_]\w+")
_FAILING = content_words("failed failure error")
"""Words of any error, which make no two endings alike."""
_BEFORE_NUMBER = re.compile(r"\D*")


@dataclass(frozen=True)
class Failure:
    """A failure: the words of its report, its error, and where it happened.

    `text` is title, description and error; `prose` is title and description. `error` is the relevant part of the error
    message: the exception and its message, else the last lines. `bare` is the signature without the HTTP status in
    front of the message, if there is one.
    """

    text: str
    error: str | None = None
    signature: Signature | None = None
    bare: Signature | None = None
    job: JobRef | None = None
    systems: frozenset[str] = frozenset()
    error_words: frozenset[str] = field(default=frozenset())
    prose: str = ""

    @property
    def digest(self) -> str | None:
        """The digest of its error signature, if any."""
        return self.signature.digest if self.signature else None

    @property
    def generic(self) -> bool:
        """Whether its error template has no cause."""
        return self.signature is not None and self.signature.generic

    @property
    def vague(self) -> bool:
        """Whether its error names no cause, neither in its headline nor in its last lines."""
        return self.generic and (self.error is None or signature(self.error).generic)

    @cached_property
    def rules_out(self) -> bool:
        """Whether the report rules out a usual cause."""
        return rules_out(self.prose)

    def repeated_words(self, earlier: "Failure") -> frozenset[str]:
        """Return the words of both messages that the report repeats in its own sentences."""
        return content_words(self.prose) & frozenset(self.content) & frozenset(earlier.content)

    def same_template(self, other: "Failure") -> bool:
        """Whether both have the same error template, or the same but for an HTTP status in front of one."""
        if self.digest is None or other.digest is None:
            return False
        mine, theirs = (each.bare.digest if each.bare else None for each in (self, other))
        return self.digest in (other.digest, theirs) or other.digest == mine

    def same_job(self, other: "Failure") -> bool:
        """Whether both name the same job."""
        return self.job is not None and self.job == other.job

    def same_system(self, other: "Failure") -> bool:
        """Whether both have the same job, or a system in common."""
        return self.same_job(other) or bool(self.systems & other.systems)

    def elsewhere(self, other: "Failure") -> bool:
        """Whether they have different jobs, or without jobs different systems."""
        if self.job is not None and other.job is not None:
            return self.job != other.job
        return bool(self.systems and other.systems) and not self.systems & other.systems

    def other_code(self, other: "Failure") -> bool:
        """Return whether both have codes of one kind, such as exit codes, and none of these in common."""
        mine, theirs = self._codes_by_kind, other._codes_by_kind
        return any(mine[kind].isdisjoint(theirs[kind]) for kind in mine.keys() & theirs.keys())

    def other_ending(self, other: "Failure") -> bool:
        """Return whether both messages begin with the same words and go on without a word in common."""
        mine, theirs = self._message_words, other._message_words
        alike = next((n for n, (word, its) in enumerate(zip(mine, theirs, strict=False)) if word != its), None)
        if alike is None or alike < BEGINNING_WORDS:
            return False
        ending, its_ending = (content_words(" ".join(words[alike:])) - _FAILING for words in (mine, theirs))
        return bool(ending and its_ending) and ending.isdisjoint(its_ending)

    @cached_property
    def _message_words(self) -> list[str]:
        """The words of the error template without quoted and replaced values."""
        return _MESSAGE_WORD.findall(_VALUE.sub(" ", self.signature.text.lower())) if self.signature else []

    @cached_property
    def content(self) -> tuple[str, ...]:
        """The content words of the error template in their order, as stems."""
        message = self.bare or self.signature
        return tuple(word for word in content_sequence(message.text) if word not in _FAILING) if message else ()

    @cached_property
    def _codes_by_kind(self) -> dict[str, set[str]]:
        """The error codes by the text before their number; names such as `enoent` are one kind."""
        found: dict[str, set[str]] = {}
        for code in self.signature.codes if self.signature else ():
            kind = _BEFORE_NUMBER.match(code)
            found.setdefault("" if kind is None or kind[0] == code else kind[0], set()).add(code)
        return found

    def common_code(self, other: "Failure") -> str | None:
        """Return the first common error code, else the common exception class if it tells what has failed."""
        if self.signature is None or other.signature is None:
            return None
        for code in self.signature.codes:
            if code in other.signature.codes:
                return code
        mine = self.signature.error_class
        return mine if mine is not None and is_telling(mine) and mine == other.signature.error_class else None


def failure_of_task(task: SubmitTask) -> Failure:
    """Return the failure of a task.

    Of a task from lineage only job and error are used, since its other sentences are the same for every incident.
    """
    job = task.target.job if task.target else None
    if job and task.task_id is not None and (task.context or {}).get("incident_id") == task.task_id:
        return _failure(None, job.name, task.error_message, task.systems, job)
    return _failure(task.title, task.description, task.error_message, task.systems, job)


def failure_of_attempt(attempt: Attempt) -> Failure:
    """Return the failure of an earlier attempt; without an error message it has the recorded signature."""
    made = _failure(attempt.title, attempt.description, attempt.error_message, attempt.systems, attempt.job)
    if made.signature is None and attempt.error_signature is not None:
        recorded = Signature(error_class=None, text="", digest=attempt.error_signature)
        return replace(made, signature=recorded)
    return made


def differences(earlier: Failure, current: Failure) -> tuple[str, ...]:
    """Return the differences between two failures, as `then ..., now ...`; of the same message only its values."""
    texts: list[str] = []
    values = earlier.same_template(current) and earlier.error and current.error
    pairs: Mapping[str, tuple[str | None, str | None]] = {
        "values in the error" if values else "error": (
            _values(earlier, current) if values else _first_line(earlier.error),
            _values(current, earlier) if values else _first_line(current.error),
        ),
        "job": (_job(earlier.job), _job(current.job)),
        "system": (", ".join(sorted(earlier.systems)) or None, ", ".join(sorted(current.systems)) or None),
    }
    for name, (then, today) in pairs.items():
        if then and then != today:
            texts.append(f"{name} then: {then}; now: {today}" if today else f"{name} then: {then}")
    return tuple(texts)


def _failure(
    title: str | None, description: str, error: str | None, systems: tuple[str, ...], job: JobRef | None
) -> Failure:
    signature_of_error = signature(error) if error else None
    cause = _cause(error, signature_of_error) if error and signature_of_error else None
    bare = without_status(error) if error else None
    words = [title if title and title not in description else None, description, cause]
    return Failure(
        text="\n".join(word[:QUERY_CHARS] for word in words if word),
        prose=f"{title or ''}\n{description}",
        error=cause[:QUERY_CHARS] if cause else None,
        signature=signature_of_error,
        bare=signature(bare) if bare else None,
        job=job,
        systems=frozenset(system.casefold() for system in systems),
        error_words=words_of_error(bare or cause),
    )


def _cause(error: str, signature_of_error: Signature) -> str:
    error_class, message = headline(error)
    named = f"{error_class}: {message}" if error_class else message
    if not signature_of_error.generic:
        return named
    last = [line.strip() for line in error.splitlines() if line.strip()][-LAST_LINES:]
    telling = [line for line in last if not signature(line).generic]
    return "\n".join(telling) or named


def _first_line(text: str | None) -> str | None:
    return _cut(text.strip().splitlines()[0]) if text and text.strip() else None


def _values(one: Failure, other: Failure) -> str | None:
    """Return the values of an error that another with the same template does not have."""
    its = parameters(other.error or "")
    return _cut(", ".join(value for value in parameters(one.error or "") if value not in its)) or None


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


def _job(job: JobRef | None) -> str | None:
    return f"{job.namespace}/{job.name}" if job else None
