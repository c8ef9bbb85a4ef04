"""Lineage events of other systems, as they come."""

from typing import Any, ClassVar

from pydantic import model_validator

from counterpoint.proto.messages import Message


class LineageEvent(Message):
    """One OpenLineage event, whatever its shape; the lineage service reads it tolerantly (row F1)."""

    TYPE: ClassVar[str] = "counterpoint.lineage.event.v1"

    event: dict[str, Any]
    waited: bool = False
    """Whether the grace for a retry has passed: then a failed try is an incident, whatever retries it has left."""

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        """An OpenLineage producer sends the event itself."""
        if isinstance(value, dict) and "event" not in value:
            return {"event": value}
        return value
