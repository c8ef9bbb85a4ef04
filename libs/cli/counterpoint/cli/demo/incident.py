"""Incident files of the demo: a failure, its attempts, and the expected recognition."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator

from counterpoint.cli.errors import UsageError
from counterpoint.proto.attempts import FixedBy, Outcome
from counterpoint.proto.messages import ProjectName, Usd
from counterpoint.proto.tasks import SubmitTask


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _beside(path: Path, info: ValidationInfo) -> Path:
    folder: Path = (info.context or {})["folder"]
    found = (folder / path).resolve()
    if not found.exists():
        raise ValueError(f"{found} does not exist")
    return found


ExistingPath = Annotated[Path, AfterValidator(_beside)]
"""A path relative to the file that names it; it exists."""


class IncidentEvents(_Part):
    """The events of a failure or a recovery: a file of OpenLineage events, one a line, or a task."""

    events: ExistingPath | None = None
    task: SubmitTask | None = None

    @model_validator(mode="after")
    def _one(self) -> "IncidentEvents":
        if (self.events is None) == (self.task is None):
            raise ValueError("an arrival is either events or a task")
        return self

    def lines(self) -> Iterator[str]:
        """Yield the events as they are in the file."""
        if self.events is not None:
            yield from (line for line in self.events.read_text().splitlines() if line.strip())


class DownstreamItem(_Part):
    """A job or dataset that the card has to show as downstream, and its owner."""

    kind: Literal["job", "dataset"]
    name: str
    owner: str


class IncidentFailure(IncidentEvents):
    """The failure, and the expected downstream items."""

    downstream: tuple[DownstreamItem, ...] = ()


class OutcomeReport(_Part):
    """An outcome reported by a person."""

    outcome: Outcome
    error_message: str | None = None
    note: str | None = None
    by: FixedBy | None = None


class OverrideInstruction(_Part):
    """Override of the calling LLM after the escalation."""

    instruction: str
    reasoning: str
    constraints: tuple[str, ...] = ()
    confidence_override: bool = False


class IncidentResolution(_Part):
    """End of the third attempt: optional events, then a person's report."""

    report: OutcomeReport
    events: ExistingPath | None = None


class ExpectedRecognition(_Part):
    """Expected recognition of the repeated failure: failed attempts, the successful one, and its author."""

    failed: int
    worked: Literal["override"]
    by: str


class UnknownTask(_Part):
    """A task that no document covers, an unrelated document, and the document with which it continues."""

    task: SubmitTask
    unrelated: ExistingPath
    document: ExistingPath


class UndocumentedFailure(_Part):
    """A failure in a project without documents, whose flows arrive all at once.

    `job` is the part of the flow that failed, `error` the beginning of its error; `near_miss` is another failure of it.
    """

    job: str
    error: str
    failure: IncidentEvents
    report: OutcomeReport
    repaired: IncidentEvents
    again: IncidentEvents
    near_miss: IncidentEvents


class DemoQuestion(_Part):
    """A question, and the end of the source that answers it; `answered` is false for a question without an answer.

    `corrected`: only the rewritten question is answered.
    """

    text: str
    cites: str | None = None
    answered: bool = True
    corrected: bool = False


class LimitedQuestion(_Part):
    """A question whose model call would exceed a limit of `usd`. `says`: the answer of the simulated provider."""

    question: str
    says: str
    knowledge: tuple[ExistingPath, ...]
    usd: Usd


class DemoIncident(_Part):
    """The story of an incident."""

    name: ProjectName
    knowledge: tuple[ExistingPath, ...]
    before: IncidentEvents | None = None
    failure: IncidentFailure
    attempts: tuple[OutcomeReport, OutcomeReport]
    override: OverrideInstruction
    resolution: IncidentResolution
    again: IncidentEvents
    recognised: ExpectedRecognition
    unknown: UnknownTask | None = None
    questions: tuple[DemoQuestion, ...] = ()
    undocumented: UndocumentedFailure | None = None
    limited: LimitedQuestion | None = None


def read_incident(path: Path) -> DemoIncident:
    """Read the incident in a file. Raises UsageError with each invalid field."""
    import yaml

    try:
        given: Any = yaml.safe_load(path.read_text())
        return DemoIncident.model_validate(given, context={"folder": path.resolve().parent})
    except (OSError, yaml.YAMLError) as unreadable:
        raise UsageError(f"{path} cannot be read: {unreadable}") from None
    except ValidationError as wrong:
        problems = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in wrong.errors()
        )
        raise UsageError(f"{path} is not a valid incident file: {problems}") from None
