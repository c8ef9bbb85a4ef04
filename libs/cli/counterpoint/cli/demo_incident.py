"""The file of an incident: how something broke, what was tried, and what must be recognised when it breaks again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator

from counterpoint.cli.errors import Misused
from counterpoint.proto.attempts import FixedBy, Outcome
from counterpoint.proto.messages import ProjectName
from counterpoint.proto.tasks import SubmitTask


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _beside(path: Path, info: ValidationInfo) -> Path:
    folder: Path = (info.context or {})["folder"]
    found = (folder / path).resolve()
    if not found.exists():
        raise ValueError(f"{found} does not exist")
    return found


Beside = Annotated[Path, AfterValidator(_beside)]
"""A path relative to the file that names it; it exists."""


class Arrival(_Part):
    """How a failure, or its end, arrives: a file of OpenLineage events, one on each line, or a task."""

    events: Beside | None = None
    task: SubmitTask | None = None

    @model_validator(mode="after")
    def _one(self) -> "Arrival":
        if (self.events is None) == (self.task is None):
            raise ValueError("an arrival is either events or a task")
        return self

    def lines(self) -> Iterator[str]:
        """The events, each as it stands in the file."""
        if self.events is not None:
            yield from (line for line in self.events.read_text().splitlines() if line.strip())


class Rests(_Part):
    """A job or dataset that the card has to show as downstream, and its owner."""

    kind: Literal["job", "dataset"]
    name: str
    owner: str


class Failure(Arrival):
    """How the failure arrives, and what rests on what failed."""

    downstream: tuple[Rests, ...] = ()


class ReportedOutcome(_Part):
    """An outcome as a person gives it."""

    outcome: Outcome
    error_message: str | None = None
    note: str | None = None
    by: FixedBy | None = None


class Instruction(_Part):
    """What the calling LLM says when the repeated failure has escalated."""

    instruction: str
    reasoning: str
    constraints: tuple[str, ...] = ()
    confidence_override: bool = False


class Resolution(_Part):
    """How the third attempt ends: events that show it, if any, then what a person says."""

    report: ReportedOutcome
    events: Beside | None = None


class Recognised(_Part):
    """What is known when it happens again: how many attempts failed, which worked, and whose that was."""

    failed: int
    worked: Literal["override"]
    by: str


class Unknown(_Part):
    """A task that no document covers, a document after which it still waits, and the one that lets it go on."""

    task: SubmitTask
    unrelated: Beside
    document: Beside


class Undocumented(_Part):
    """A failure in a project without documents, whose flows arrive all at once.

    `job` is the part of the flow that failed, `error` the beginning of its error; `near_miss` is another failure of it.
    """

    job: str
    error: str
    failure: Arrival
    report: ReportedOutcome
    repaired: Arrival
    again: Arrival
    near_miss: Arrival


class Question(_Part):
    """A question, with the end of the source that answers it, or one that is honestly not answered.

    `corrected`: as it is put, nothing answers it; put in other words, something does.
    """

    text: str
    cites: str | None = None
    answered: bool = True
    corrected: bool = False


class Incident(_Part):
    """One story."""

    name: ProjectName
    knowledge: tuple[Beside, ...]
    before: Arrival | None = None
    failure: Failure
    attempts: tuple[ReportedOutcome, ReportedOutcome]
    override: Instruction
    resolution: Resolution
    again: Arrival
    recognised: Recognised
    unknown: Unknown | None = None
    questions: tuple[Question, ...] = ()
    undocumented: Undocumented | None = None


def read_incident(path: Path) -> Incident:
    """The incident of a file. Raises Misused, naming each field at fault."""
    import yaml

    try:
        given: Any = yaml.safe_load(path.read_text())
        return Incident.model_validate(given, context={"folder": path.resolve().parent})
    except (OSError, yaml.YAMLError) as unreadable:
        raise Misused(f"{path} cannot be read: {unreadable}") from None
    except ValidationError as wrong:
        problems = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in wrong.errors()
        )
        raise Misused(f"{path} is no incident: {problems}") from None
