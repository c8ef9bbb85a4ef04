"""Quiet hours hold back notifications."""

from datetime import UTC, datetime, timedelta

import pytest
from agents.hook_receiver import HookReceiver
from agents.notified_house import DONE, NOW, PROPOSED, SLACK_REPLY, NotifiedHouse, completed, proposed, receiver
from pydantic import ValidationError

from counterpoint.router.notify.quiet_hours import QuietHours


async def test_quiet_hours_hold_back_all_but_urgent_messages(hook: HookReceiver) -> None:
    hook.reply = SLACK_REPLY
    quiet = {"start": "22:00", "end": "07:30", "zone": "Europe/Berlin"}
    house = NotifiedHouse([receiver(hook, "slack", quiet=quiet)])
    assert NOW.hour == 3
    house.task(**PROPOSED)
    await house.tell(proposed())
    house.task("incident-2", priority="urgent", **PROPOSED)
    await house.tell(proposed("incident-2"))
    await house.settle()
    assert len(hook.received) == 1
    house.task(**DONE)
    await house.tell(completed())
    await house.settle(timedelta(hours=3, minutes=30))
    assert len(hook.received) == 2
    assert "is resolved" in hook.received[1].json["text"]


@pytest.mark.parametrize(
    ("start", "end", "at", "over"),
    [
        ("22:00", "07:00", "2026-03-02T21:59:00Z", None),
        ("22:00", "07:00", "2026-03-02T22:00:00Z", "2026-03-03T07:00:00Z"),
        ("22:00", "07:00", "2026-03-02T06:59:00Z", "2026-03-02T07:00:00Z"),
        ("22:00", "07:00", "2026-03-02T07:00:00Z", None),
        ("12:00", "13:00", "2026-03-02T12:30:00Z", "2026-03-02T13:00:00Z"),
        ("12:00", "13:00", "2026-03-02T11:30:00Z", None),
    ],
)
def test_quiet_hours_may_pass_midnight(start: str, end: str, at: str, over: str | None) -> None:
    hours = QuietHours.model_validate({"start": start, "end": end})
    assert hours.over_at(datetime.fromisoformat(at)) == (datetime.fromisoformat(over) if over else None)


@pytest.mark.parametrize("minute", range(0, 240, 15))
def test_quiet_hours_are_over_later_when_an_hour_comes_twice(minute: int) -> None:
    quiet = QuietHours.model_validate({"start": "22:00", "end": "02:30", "zone": "Europe/Berlin"})
    now = datetime(2026, 10, 24, 23, 0, tzinfo=UTC) + timedelta(minutes=minute)
    over = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert quiet.over_at(now) == (over if now < over else None)


def test_quiet_hours_that_are_impossible_are_refused() -> None:
    for wrong in ({"zone": "Mars/Base"}, {"end": "22:00"}, {"start": "25:00"}):
        with pytest.raises(ValidationError):
            QuietHours.model_validate({"start": "22:00", "end": "07:00", **wrong})
