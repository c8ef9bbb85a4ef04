"""Digests: at fixed times of the day one message about all incidents of a project that changed since the last."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from agents.hook_receiver import HookReceiver, Reply
from agents.notified_house import (
    DONE,
    ESCALATED,
    NOW,
    PROPOSED,
    SLACK_REPLY,
    NotifiedHouse,
    completed,
    escalated,
    proposed,
    receiver,
)
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from counterpoint.proto.approvals import ApprovalRequested
from counterpoint.router.notify.bodies.mail import digest_text, mail_of
from counterpoint.router.notify.deliveries import Delivery
from counterpoint.router.notify.digest import INCIDENTS_LIMIT, DigestTimes, digest_of
from counterpoint.router.notify.receivers import Receiver
from counterpoint.router.notify.summary import IncidentSummary

DAILY = {"at": ["08:00"], "zone": "Europe/Berlin"}
"""In March that is 07:00 UTC, four hours after the clock of the house begins."""
SEVERE = {**DAILY, "unless": "high"}
DAY = timedelta(days=1)
MAIL = Receiver.model_validate(
    {"name": "mail", "kind": "email", "url": "smtp://mail.example.com", "to": ["a@b.example"], "sender": "c@d.example"}
)


@pytest.fixture
def hook(hook: HookReceiver) -> HookReceiver:
    """A receiver that answers as Slack does."""
    hook.reply = SLACK_REPLY
    return hook


def texts(hook: HookReceiver) -> list[str]:
    return [one.json["text"] for one in hook.received]


async def test_a_digest_lists_changes_since_the_last_one_and_is_not_sent_without_any(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack", digest=SEVERE)])
    house.task("incident-1", title="load_stock", **PROPOSED)
    await house.tell(proposed("incident-1"))
    house.task("incident-2", title="send_mail", **ESCALATED)
    await house.tell(escalated("incident-2"))
    await house.settle(timedelta(hours=3))
    assert hook.received == []
    await house.settle(DAY)
    assert texts(hook) == ["orders: 2 incidents since 01 Mar 07:00 UTC: 1 waiting for you, 1 with a proposal"]
    shown = [block["text"]["text"] for block in hook.received[0].json["blocks"][1:]]
    assert shown == ["• send_mail needs you (normal, incident-2)", "• load_stock has a proposal (normal, incident-1)"]
    await house.settle(2 * DAY)
    assert len(hook.received) == 1, "days without an event have no digest"
    house.task("incident-1", **DONE)
    await house.tell(completed("incident-1"))
    await house.settle(DAY)
    assert texts(hook)[1:] == ["orders: 1 incident since 04 Mar 07:00 UTC: 1 resolved"]


async def test_severe_incidents_and_approvals_are_sent_at_once(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack", digest=SEVERE)])
    house.task("incident-1", priority="high", **PROPOSED)
    await house.tell(proposed("incident-1"))
    await house.settle()
    assert texts(hook) == ["orders_ingest.fetch has a proposal"]
    house.task("incident-2", waiting_for="approval", state="input_required")
    await house.tell(
        ApprovalRequested(
            approval_id="a1", task_id="incident-2", category="proposal", artifact_sha256="0" * 64,
            summary="s", expires_at=NOW + DAY,
        )
    )  # fmt: skip
    await house.settle()
    assert texts(hook)[1:] == ["orders_ingest.fetch waits for an approval"]
    await house.settle(DAY)
    assert texts(hook)[2:] == [
        "orders: 2 incidents since 01 Mar 07:00 UTC: 1 waiting for an approval, 1 with a proposal"
    ]


async def test_a_reminder_of_an_approval_goes_to_a_second_person(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack", reminder=1, events=["approval_requested"])])
    house.task(waiting_for="approval", state="input_required")
    for number in range(3):
        await house.tell(
            ApprovalRequested(
                approval_id="a1", task_id="incident-1", category="proposal", artifact_sha256="0" * 64,
                summary="s", expires_at=NOW + DAY, reminder=number,
            )
        )  # fmt: skip
        await house.settle(timedelta(hours=4))
        assert len(hook.received) == min(number, 1)


async def test_a_digest_in_addition_to_messages_and_in_quiet_hours(hook: HookReceiver) -> None:
    quiet = {"start": "00:00", "end": "12:00"}
    house = NotifiedHouse([receiver(hook, "slack", digest=DAILY, quiet=quiet)])
    house.task(**PROPOSED)
    await house.tell(proposed())
    await house.settle(timedelta(hours=5))
    assert texts(hook) == ["orders: 1 incident since 01 Mar 07:00 UTC: 1 with a proposal"]
    await house.settle(timedelta(hours=5))
    assert texts(hook)[1:] == ["orders_ingest.fetch has a proposal"]


async def test_a_failed_digest_is_repeated_as_it_was_and_a_killed_one_is_made_by_the_next_process(
    hook: HookReceiver,
) -> None:
    house = NotifiedHouse([receiver(hook, "slack", digest=SEVERE)])
    house.task(**PROPOSED)
    await house.tell(proposed())
    hook.replies = [Reply(503)]
    await house.settle(timedelta(hours=3, minutes=59))
    house.restart()
    await house.settle(timedelta(minutes=2))
    house.task("incident-2", **PROPOSED)
    await house.settle(timedelta(minutes=10))
    assert len(hook.received) == 2
    assert hook.received[0].content == hook.received[1].content
    assert [each["state"] for each in house.deliveries()] == ["delivered"]


async def test_an_event_that_is_handled_late_is_in_the_next_digest(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack", digest=SEVERE)])
    house.task(**PROPOSED)
    await house.settle(timedelta(hours=5))
    assert house.clock.now.hour == 8, "the router was down at the time of the digest"
    await house.tell(proposed())
    house.task("incident-2", **PROPOSED)
    await house.tell(proposed("incident-2"))
    await house.settle(DAY)
    assert texts(hook) == ["orders: 2 incidents since 02 Mar 03:00 UTC: 2 with a proposal"]


async def test_a_digest_is_for_its_receiver_alone(hook: HookReceiver) -> None:
    """It holds nothing of a task in shadow, of other owners or kinds, and no text above the clearance."""
    house = NotifiedHouse([receiver(hook, "slack", digest=SEVERE, owners=["team-a"], clearance="internal")])
    house.task("incident-1", title="first", context={"owner": "team-a"}, **PROPOSED)
    house.task("incident-2", title="second", context={"owner": "team-b"}, **PROPOSED)
    house.task("incident-3", title="third", context={"owner": "team-a"}, shadow=True, **PROPOSED)
    house.task("incident-4", title="fourth", context={"owner": "team-a"}, kind="question", **PROPOSED)
    house.task("incident-5", title="fifth", context={"owner": "team-a"}, label=2, **PROPOSED)
    await house.tell(proposed("incident-1"))
    await house.settle(DAY)
    (told,) = hook.received
    shown = told.content.decode()
    assert "first" in shown
    assert "Task incident-5" in shown
    assert not any(word in shown for word in ("second", "third", "fourth", "fifth"))
    assert told.json["text"].startswith("orders: 2 incidents")


async def test_a_digest_of_a_thousand_incidents_is_short_and_says_how_many_it_leaves_out(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "teams", digest=SEVERE)])
    for number in range(130):
        house.task(f"incident-{number}", title=f"job <at>{number}</at>", **PROPOSED)
    await house.tell(proposed("incident-7"))
    await house.settle(DAY)
    body = hook.received[0].json["attachments"][0]["content"]["body"]
    assert len(body) == INCIDENTS_LIMIT + 2
    assert body[-1]["text"] == "and 110 more"
    assert "<at>" not in hook.received[0].content.decode().replace("\\\\<", "")


async def test_a_digest_reads_only_the_pages_with_changes(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack", digest=SEVERE)])
    for number in range(200):
        house.task(f"old-{number}", **DONE)
    await house.settle(DAY)
    for number in range(25):
        house.task(f"incident-{number}", **PROPOSED)
    await house.tell(proposed("incident-0"))
    answer, pages = house.memory.transport, list[bytes]()

    async def transport(subject: str, body: bytes, timeout_s: float) -> bytes:
        pages.extend([body] if b'"op":"list"' in body else [])
        return await answer(subject, body, timeout_s)

    house.memory.transport = transport  # type: ignore[method-assign]
    await house.settle(DAY)
    assert texts(hook) == ["orders: 25 incidents since 02 Mar 07:00 UTC: 25 with a proposal"]
    assert len(pages) == 2


def test_a_mail_of_a_digest_is_plain_text() -> None:
    incident = IncidentSummary(
        task_id="t1", project="orders", kind="troubleshoot", status="escalated", severity="urgent",
        title="load\nstock", owner="team-a", affected_count=3, first_at=NOW, opened_at=NOW,
    )  # fmt: skip
    digest = digest_of("orders", NOW - DAY, NOW, [incident, incident.model_copy(update={"status": "resolved"})])
    assert digest is not None
    assert "- load\nstock needs you (urgent, team-a, 3 more failed, t1)" in digest_text(digest)
    delivery = Delivery(receiver="mail", project="orders", digest=digest, created_at=NOW)
    mail = mail_of(MAIL, "d1", delivery, NOW)
    assert mail["Subject"] == "orders: 2 incidents since 01 Mar 03:00 UTC: 1 waiting for you, 1 resolved"
    assert mail["Message-ID"] == "<d1.1@counterpoint.invalid>"
    assert digest_of("orders", NOW - DAY, NOW, []) is None


@pytest.mark.parametrize("wrong", [{"at": []}, {"at": ["24:00"]}, {"at": ["8"], "zone": "Mars/Base"}, {"unless": "x"}])
def test_times_that_are_impossible_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DigestTimes.model_validate({"at": ["08:00"], **wrong})


@pytest.mark.parametrize("kind", ["webhook", "pagerduty", "alertmanager"])
def test_a_receiver_of_single_events_has_no_digest(hook: HookReceiver, kind: str) -> None:
    with pytest.raises(ValidationError, match="digest is possible for the kinds slack, teams, email"):
        receiver(hook, kind, digest=DAILY)


@given(
    st.integers(min_value=1_700_000_000, max_value=1_800_000_000),
    st.lists(st.times().map(lambda each: each.replace(second=0, microsecond=0)), min_size=1, max_size=4),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia"]),
)
def test_every_moment_lies_between_two_digests(seconds: int, at: list[Any], zone: str) -> None:
    now, times = datetime.fromtimestamp(seconds, UTC), DigestTimes(at=tuple(at), zone=zone)
    following = times.next_after(now)
    assert times.last_before(following) <= now < following
    assert following - now <= timedelta(hours=26)
