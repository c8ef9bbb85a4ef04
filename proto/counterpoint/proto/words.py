"""Numbers, times and spans of time in words."""

from datetime import timedelta
from typing import Any

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def quantity(number: int, noun: str) -> str:
    """Return a number with its noun: `1 hop`, `2 hops`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ordinal(number: int) -> str:
    """Return `third`, from eleven on `11th`, `22nd`."""
    if 1 <= number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def span(length: timedelta) -> str:
    """Return a span of time in the largest unit that it holds twice; a short one in minutes."""
    minutes = max(1, round(length.total_seconds() / 60))
    if minutes >= 2 * 24 * 60:
        return quantity(round(minutes / (24 * 60)), "day")
    return quantity(round(minutes / 60), "hour") if minutes >= 2 * 60 else quantity(minutes, "minute")


def when(moment: Any) -> str:
    """Return a time from the API, to the second."""
    return str(moment or "")[:19].replace("T", " ")
