"""Parsing of records. Among several, an unreadable record is left out, logged and counted."""

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import structlog
from prometheus_client import Counter
from pydantic import ValidationError

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Item
from counterpoint.proto.messages import Shape
from counterpoint.proto.records import with_version
from counterpoint.proto.validation import field_problems

log = structlog.get_logger()

UNREADABLE = Counter(
    "counterpoint_unreadable_records_total",
    "Records skipped because they do not match the model of their store",
    ["store"],
)

Record = TypeVar("Record", bound=Shape)


class RecordVersion(Protocol):
    """A version of a record: an item as it was read, or what its writer remembers."""

    @property
    def store(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def body(self) -> dict[str, Any]: ...


def record(item: RecordVersion, shape: type[Record]) -> Record:
    """Return a record's body as a shape, with its version if the shape has one. Raises `Permanent` `unreadable`."""
    try:
        return shape.model_validate(with_version(shape, item.body, item.version))
    except ValidationError as error:
        where = f"{item.store}/{item.id}"
        problems = (
            Problem(field=f"{where}.{each.field}", problem=each.problem) for each in field_problems(item.body, error)
        )
        raise Permanent(ErrorCode.UNREADABLE, tuple(problems)[:5]) from error


def readable(items: Iterable[Item], shape: type[Record]) -> list[tuple[Item, Record]]:
    """Return the readable items in their order, each with its body as a shape."""
    pairs = []
    for item in items:
        try:
            pairs.append((item, record(item, shape)))
        except Permanent as error:
            UNREADABLE.labels(item.store).inc()
            log.warning("record.unreadable", store=item.store, id=item.id, version=item.version, reason=str(error))
    return pairs


def records(items: Iterable[Item], shape: type[Record]) -> list[Record]:
    """Return the bodies of the readable items as shapes."""
    return [body for _, body in readable(items, shape)]
