"""Quiet hours of a receiver: messages below a severity wait for their end. Pure."""

from datetime import UTC, datetime, time, timedelta
from typing import Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, model_validator

from counterpoint.proto.tasks import Priority


def check_zone(name: str) -> None:
    """Raise `ValueError` for a name that is no time zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name} is not a time zone") from error


class QuietHours(BaseModel):
    """The hours from `start` to `end` in `zone`, which may pass midnight.

    `unless` is the lowest severity that does not wait.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: time
    end: time
    zone: str = "UTC"
    unless: Priority = "urgent"

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_zone(self.zone)
        if self.start == self.end:
            raise ValueError("start and end are the same")
        return self

    def over_at(self, now: datetime) -> datetime | None:
        """Return when the quiet hours that `now` is in are over; None outside of them."""
        zone = ZoneInfo(self.zone)
        today = now.astimezone(zone).date()
        for day in (today - timedelta(days=1), today):
            # Times of one zone are compared by the clock on the wall, which repeats an hour when summer ends.
            start = datetime.combine(day, self.start, zone).astimezone(UTC)
            end = datetime.combine(day + timedelta(days=self.end < self.start), self.end, zone).astimezone(UTC)
            if start <= now < end:
                return end.astimezone(now.tzinfo)
        return None
