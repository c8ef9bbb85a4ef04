"""The base of all messages: immutable models with a versioned type, and the register of types."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
)

_DATE_AND_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d.*")
_DECIMAL = re.compile(r"-?\d{1,18}(\.\d{1,18})?")


def _written_out(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not _DATE_AND_TIME.fullmatch(value):
        raise ValueError("must be a time with its zone, such as 2026-11-20T17:30:00Z")
    return datetime.fromisoformat(value.upper())


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is outside of the supported years") from error


def _plain_decimal(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise ValueError("must be an amount, such as 12.50")
    return Decimal(value)


Time = Annotated[AwareDatetime, BeforeValidator(_written_out), AfterValidator(_in_utc)]
"""A time; RFC 3339 in UTC on the wire."""

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""A UUIDv7 of ours, or an id chosen by the sender."""

ProjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]

Usd = Annotated[
    Decimal,
    BeforeValidator(_plain_decimal),
    Field(max_digits=18, decimal_places=9),
    PlainSerializer(lambda value: format(value, "f"), return_type=str),
]
"""Money in US dollars, a decimal string on the wire."""

MESSAGE_LIMIT_BYTES = 256 * 1024
"""Size limit of a foreign message."""
BODY_LIMIT_BYTES = 384 * 1024
"""Size limit of the body of a record or of an internal message, which may contain the largest submission."""
PART_BYTES = 256 * 1024


class Shape(BaseModel):
    """A frozen value. Unknown fields are ignored, so that readers accept later versions."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Blob(Shape):
    """A reference to content stored separately: its id in memory, sha256 and length in bytes."""

    blob: Id
    sha256: str
    bytes: int


class Message(Shape):
    """A message. `TYPE`, `counterpoint.<noun>.<verb>.v<N>`, distinguishes versions on one subject."""

    TYPE: ClassVar[str]
    register: ClassVar[dict[str, type["Message"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "TYPE" in cls.__dict__:
            Message.register[cls.TYPE] = cls


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
