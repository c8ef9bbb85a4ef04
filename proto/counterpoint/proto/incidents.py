"""Past incidents, imported from other systems: what was tried, and the outcome."""

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from counterpoint.proto.attempts import Outcome
from counterpoint.proto.messages import Shape, Time
from counterpoint.proto.tasks import JobRef

Text = Annotated[str, StringConstraints(min_length=1, max_length=16_000, pattern=r"^[^\x00]*$")]
Word = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]


class PastIncident(Shape):
    """One recorded attempt at a failure.

    `source` is the file or system it comes from. The identity within it is `id`, or without one `error_message`,
    `description`, `tried` and `when`; an import with the same identity replaces the record. At least one of
    `error_message` and `description` is required.
    """

    source: Annotated[str, StringConstraints(min_length=1, max_length=2_000, pattern=r"^[^\x00]*$")]
    id: Word | None = None
    error_message: Text | None = None
    title: Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=r"^[^\x00]*$")] | None = None
    description: Text | None = None
    tried: Text
    outcome: Outcome
    when: Time
    by: Word
    systems: tuple[Word, ...] = Field(default=(), max_length=50)
    job: JobRef | None = None
    note: Text | None = None

    @model_validator(mode="after")
    def _has_failure(self) -> "PastIncident":
        if not f"{self.error_message or ''}{self.description or ''}".strip():
            raise ValueError("error_message or description is required")
        return self
