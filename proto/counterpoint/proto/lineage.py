"""Lineage events of other systems, as received."""

from typing import Any, ClassVar

from pydantic import model_validator

from counterpoint.proto.messages import Message


class LineageEvent(Message):
    """One OpenLineage event; the lineage service parses it tolerantly."""

    TYPE: ClassVar[str] = "counterpoint.lineage.event.v1"

    event: dict[str, Any]
    waited: bool = False
    """Whether the retry grace period has passed: then a failed run opens an incident even if retries are left."""

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        """Accept the bare event, as OpenLineage producers send it."""
        if isinstance(value, dict) and "event" not in value:
            return {"event": value}
        return value
