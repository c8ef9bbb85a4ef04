"""Receivers are told what happens to tasks: signed, once per key, again after a failure, and never through a detour."""

import asyncio
import base64
import hashlib
import hmac
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from agents.hook_receiver import HookReceiver, Received, Reply, hook_receiver
from agents.notified_house import NotifiedHouse

from counterpoint.proto.errors import Permanent
from counterpoint.proto.findings import Findings
from counterpoint.proto.ids import new_id
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import TaskProposed, TaskResumed
from counterpoint.router.notify.deliveries import ATTEMPTS
from counterpoint.router.notify.handlers import CALLS_LIMIT
from counterpoint.router.notify.lanes import CALLS_AT_ONCE
from counterpoint.router.notify.outbound import may_connect
from counterpoint.router.notify.receivers import Receiver, ReceiverError, load_receivers
from counterpoint.router.notify.wiring import finished

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
DAYS = timedelta(days=1)


@pytest_asyncio.fixture
async def hook() -> AsyncIterator[HookReceiver]:
    async with hook_receiver() as receiver:
        yield receiver


def webhook(hook: HookReceiver, **fields: Any) -> Receiver:
    return Receiver.model_validate(
        {"name": "ops", "url": f"{hook.url}/in", "secret": SECRET, "private": True, **fields}
    )


def proposed(task_id: str = "incident-1", proposal: str = "Restart it") -> TaskProposed:
    return TaskProposed(task_id=task_id, attempt=1, proposal=proposal, artifact_sha256="0" * 64, findings=Findings())


def resumed(task_id: str = "incident-1") -> TaskResumed:
    return TaskResumed(task_id=task_id, reason="an override")


def signature_of(request: Received) -> str:
    """The signature by the words of the specification."""
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.content
    return "v1," + base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()


async def test_an_event_is_a_signed_cloud_event(hook: HookReceiver) -> None:
    house = NotifiedHouse([webhook(hook)])
    house.task(proposal="Restart it", waiting_for="outcome")
    event_id = new_id()
    await house.tell(proposed(), event_id)
    await house.settle()
    (request,) = hook.received
    assert request.path == "/in"
    assert request.headers["webhook-signature"] == signature_of(request)
    assert request.headers["content-type"].startswith("application/cloudevents+json")
    event = request.json
    assert (event["specversion"], event["type"], event["id"]) == ("1.0", TaskProposed.TYPE, event_id)
    assert (event["subject"], event["project"], event["data"]["proposal"]) == ("incident-1", "orders", "Restart it")
    (delivery,) = house.deliveries()
    assert (delivery["state"], delivery["sent_revision"]) == ("delivered", 1)


async def test_an_event_delivered_twice_and_a_call_due_twice_tell_once(hook: HookReceiver) -> None:
    house = NotifiedHouse([webhook(hook)])
    house.task()
    event_id = new_id()
    for _ in range(2):
        await house.tell(proposed(), event_id)
    due = list(house.memory.timers)
    await house.settle()
    house.memory.timers += due
    await house.settle()
    assert len(hook.received) == 1


async def test_a_failure_is_tried_again_under_the_same_key_until_it_is_dead(hook: HookReceiver) -> None:
    hook.reply = Reply(500)
    house = NotifiedHouse([webhook(hook)])
    house.task()
    await house.tell(proposed())
    await house.settle(4 * DAYS)
    assert len(hook.received) == ATTEMPTS
    assert len({request.headers["webhook-id"] for request in hook.received}) == 1
    assert len({request.headers["webhook-timestamp"] for request in hook.received}) == ATTEMPTS
    ((message, error),) = house.dead
    assert isinstance(error, Permanent)
    assert "HTTP 500" in str(error)
    assert house.deliveries()[0]["state"] == "dead"
    hook.reply = Reply()
    await house._run(house.notifications.on_due, message, new_id())
    assert (len(hook.received), house.deliveries()[0]["state"]) == (ATTEMPTS + 1, "delivered")


async def test_a_receiver_that_is_down_for_a_day_loses_nothing_and_delays_no_other(hook: HookReceiver) -> None:
    async with hook_receiver() as down:
        down.reply = Reply(503)
        house = NotifiedHouse([webhook(hook), webhook(down, name="down")])
        for number in range(20):
            house.task(f"incident-{number}")
            await house.tell(proposed(f"incident-{number}"))
        await house.settle()
        assert len(hook.received) == 20
        await house.settle(DAYS)
        refused = len(down.received)
        down.reply = Reply()
        await house.settle(3 * DAYS)
    accepted = down.received[refused:]
    assert {request.json["subject"] for request in accepted} == {f"incident-{number}" for number in range(20)}
    assert len(accepted) == len(hook.received) == 20
    assert not house.dead


async def test_a_receiver_that_hangs_holds_up_its_own_lane_alone(hook: HookReceiver) -> None:
    async with hook_receiver() as stuck:
        stuck.reply = Reply(hangs=True)
        house = NotifiedHouse([webhook(stuck, name="stuck"), webhook(hook)], timeout_s=30)
        for number in range(CALLS_AT_ONCE + 3):
            house.task(f"incident-{number}")
            await house.tell(proposed(f"incident-{number}"))
        due = [NotificationDue.model_validate(timer.data) for timer in house.memory.timers]
        house.memory.timers.clear()
        calls = [asyncio.create_task(house._run(house.notifications.on_due, one, new_id())) for one in due]
        await stuck.until(CALLS_AT_ONCE)
        await hook.until(1)
        waiting = {call for call in calls if not call.done()}
        while len(waiting) > CALLS_AT_ONCE:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert len(stuck.received) == CALLS_AT_ONCE
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    planned = [one for one in house.deliveries() if one["receiver"] == "stuck" and one["state"] == "pending"]
    assert {one["attempt"] for one in planned} == {1}
    assert len(planned) == 3


async def test_receivers_that_hang_leave_workers_to_the_intake(hook: HookReceiver) -> None:
    hook.reply = Reply(hangs=True)
    house = NotifiedHouse([webhook(hook, name=f"r{number}") for number in range(CALLS_LIMIT + 2)], timeout_s=30)
    house.task()
    await house.tell(proposed())
    due = [NotificationDue.model_validate(timer.data) for timer in house.memory.timers]
    calls = {asyncio.create_task(house._run(house.notifications.on_due, one, new_id())) for one in due}
    await hook.until(CALLS_LIMIT)
    while len(calls) > CALLS_LIMIT:
        _, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert len(hook.received) == CALLS_LIMIT
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_a_call_that_takes_too_long_has_failed(hook: HookReceiver) -> None:
    hook.replies = [Reply(hangs=True)]
    house = NotifiedHouse([webhook(hook)], timeout_s=0.05)
    house.task()
    await house.tell(proposed())
    await house.settle(timedelta(seconds=60))
    assert len(hook.received) == 2
    assert house.deliveries()[0]["state"] == "delivered"


async def test_the_delay_that_a_receiver_asks_for_is_kept(hook: HookReceiver) -> None:
    hook.replies = [Reply(429, {"Retry-After": "3600"})]
    house = NotifiedHouse([webhook(hook)])
    for number in range(2):
        house.task(f"incident-{number}")
        await house.tell(proposed(f"incident-{number}"))
    await house.settle()
    house.restart()
    await house.settle(timedelta(minutes=59))
    assert len(hook.received) == 1
    await house.settle(timedelta(hours=2))
    assert len(hook.received) == 3


async def test_a_redirect_is_not_followed(hook: HookReceiver) -> None:
    async with hook_receiver() as elsewhere:
        for target in ("http://169.254.169.254/latest/meta-data/", elsewhere.url):
            hook.replies.append(Reply(307, {"Location": target}))
        house = NotifiedHouse([webhook(hook)])
        for number in range(2):
            house.task(f"incident-{number}")
            await house.tell(proposed(f"incident-{number}"))
        await house.settle(DAYS)
        assert (len(hook.received), elsewhere.received) == (2, [])
    assert len(house.dead) == 2
    assert all("redirects" in str(error) for _, error in house.dead)


@pytest.mark.parametrize(
    ("address", "private", "allowed"),
    [
        ("93.184.216.34", False, True),
        ("127.0.0.1", False, False),
        ("127.0.0.1", True, True),
        ("10.1.2.3", False, False),
        ("10.1.2.3", True, True),
        ("::ffff:10.1.2.3", False, False),
        ("fd00::1", False, False),
        ("169.254.169.254", True, False),
        ("::ffff:169.254.169.254", True, False),
        ("fe80::1%eth0", True, False),
        ("0.0.0.0", True, False),
        ("224.0.0.1", True, False),
        ("100.64.0.1", False, False),
        ("192.0.0.192", True, False),
        ("2606:4700::1111", False, True),
        ("64:ff9b::5db8:d822", False, True),
        ("64:ff9b::a9fe:a9fe", True, False),
        ("64:ff9b::a01:203", False, False),
        ("2002:a9fe:a9fe::1", True, False),
        ("::127.0.0.1", False, False),
    ],
)
def test_an_address_may_be_called(address: str, private: bool, allowed: bool) -> None:
    assert may_connect(address, private) is allowed


async def test_a_name_that_leads_to_a_private_address_is_refused(
    hook: HookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(hook.url.rpartition(":")[2])
    asked: list[str] = []

    async def resolve(self: Any, host: str, *args: Any, **kwargs: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    for private, calls in ((False, 0), (True, 1)):
        house = NotifiedHouse([webhook(hook, url=f"http://hooks.example.com:{port}/in", private=private)])
        house.task()
        await house.tell(proposed())
        await house.settle()
        assert len(hook.received) == calls
    assert "hooks.example.com" in asked
    assert hook.received[0].headers["host"] == f"hooks.example.com:{port}"


async def test_a_call_of_a_process_that_was_killed_is_made_again_under_the_same_key(hook: HookReceiver) -> None:
    hook.replies = [Reply(hangs=True)]
    house = NotifiedHouse([webhook(hook)], timeout_s=30)
    house.task()
    await house.tell(proposed())
    (timer,) = house.memory.timers
    due = NotificationDue.model_validate(timer.data)
    call = asyncio.create_task(house._run(house.notifications.on_due, due, timer.id))
    await hook.until(1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert house.deliveries()[0]["state"] == "calling"
    house.restart()
    await house.settle()
    ((_, error),) = house.dead
    assert "another process" in str(error)
    house.clock.now += timedelta(minutes=1)
    house.memory.timers.append(timer)
    await house.settle()
    first, second = hook.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert house.deliveries()[0]["state"] == "delivered"


async def test_a_message_that_is_delivered_again_during_its_call_waits(hook: HookReceiver) -> None:
    hook.replies = [Reply(hangs=True)]
    house = NotifiedHouse([webhook(hook)], timeout_s=30)
    house.task()
    await house.tell(proposed())
    (timer,) = house.memory.timers
    due = NotificationDue.model_validate(timer.data)
    call = asyncio.create_task(house._run(house.notifications.on_due, due, timer.id))
    await hook.until(1)
    await house.settle()
    ((_, error),) = house.dead
    assert "under way" in str(error)
    assert len(hook.received) == 1
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def test_a_call_whose_outcome_could_not_be_committed_is_not_made_again(hook: HookReceiver) -> None:
    house = NotifiedHouse([webhook(hook)])
    house.task()
    await house.tell(proposed())
    (timer,) = house.memory.timers
    due = NotificationDue.model_validate(timer.data)
    client = house.memory.memory(timer.id)
    await house.notifications.on_due(due, client)
    await house.settle()
    assert len(hook.received) == 1
    assert house.deliveries()[0]["state"] == "delivered"


async def test_rules_choose_the_receivers(hook: HookReceiver) -> None:
    rules: dict[str, dict[str, Any]] = {
        "other-project": {"projects": ["billing"]},
        "urgent": {"severity": "urgent"},
        "questions": {"kinds": ["question"]},
        "escalations": {"events": ["escalated"]},
        "owner": {"owners": ["team-ingest"]},
        "downstream": {"owners": ["team-finance"]},
        "nobody": {"owners": ["team-x"]},
        "high": {"severity": "normal", "projects": ["orders"]},
    }
    house = NotifiedHouse([webhook(hook, name=name, **rule) for name, rule in rules.items()])
    row = {"kind": "job", "namespace": "prod", "name": "revenue", "hops": 1, "edge": "data", "owner": "team-finance"}
    house.task(priority="high", context={"owner": "team-ingest"}, findings={"downstream": [row]})
    await house.tell(proposed())
    assert {one["receiver"] for one in house.deliveries()} == {"owner", "downstream", "high"}


async def test_a_shadow_task_and_one_of_another_project_tell_nobody(hook: HookReceiver) -> None:
    house = NotifiedHouse([webhook(hook)])
    house.task(shadow=True)
    await house.tell(proposed())
    house.memory.put("tasks", "theirs", house.memory.one("tasks", "incident-1").body, "billing")
    await house.tell(proposed("theirs"))
    assert house.deliveries() == []


async def test_text_above_the_clearance_is_withheld_and_long_text_shortened(hook: HookReceiver) -> None:
    slack = webhook(hook, name="slack", kind="slack", channel="C1", url=hook.url)
    house = NotifiedHouse([webhook(hook), slack])
    house.task(label=2, proposal="confidential words", waiting_for="outcome")
    await house.tell(proposed(proposal="confidential words"))
    await house.settle()
    assert len(hook.received) == 2
    assert all(b"confidential words" not in request.content for request in hook.received)
    house.task("incident-2", proposal="x" * 20_000)
    await house.tell(proposed("incident-2", "x" * 20_000))
    await house.settle()
    assert all(len(request.content) < 8000 for request in hook.received)


def test_the_file_of_receivers_is_private_and_named_problems_show_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "receivers.toml"
    file.write_text('[[receiver]]\nname = "ops"\nkind = "slack"\nurl = "https://hooks.slack.com/services/T/B/hush"\n')
    file.chmod(0o644)
    with pytest.raises(ReceiverError, match="chmod 600"):
        load_receivers(None, None, False, file)
    file.chmod(0o600)
    (receiver,) = load_receivers(None, None, False, file)
    assert "hush" not in repr(receiver)
    wrong_rows = (
        'url = "ftp://hush"', 'kind = "pagerduty"', 'secret = "hush"\nkind = "slack"', 'color = "hush"',
        'url = "https://hush:hush@example.com"', 'url = "https://example.com:hush"', 'url = "https://hüsh.example"',
        'url = "https://example.com/hush"\nsecret = "whsec_"',
    )  # fmt: skip
    for wrong in wrong_rows:
        file.write_text(f'[[receiver]]\nname = "ops"\n{wrong}\n')
        with pytest.raises(ReceiverError) as refused:
            load_receivers(None, None, False, file)
        assert "hush" not in str(refused.value)


async def test_an_event_that_nobody_is_told_of_is_finished_too(hook: HookReceiver) -> None:
    house = NotifiedHouse([])
    client = house.memory.memory(new_id())
    await finished(house.notifications.on_event)(proposed(), client)
    assert client.finished
    assert [commit.writes for commit in house.memory.commits] == [()]
