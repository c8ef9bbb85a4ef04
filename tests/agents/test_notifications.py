"""Receivers are told what happens to tasks: signed, once per key, again after a failure, and never through a detour."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from agents.hook_receiver import HookReceiver, HookRequest, Reply, hook_receiver
from agents.notified_house import KEY, NotifiedHouse, proposed, webhook
from memory_service.fake import SentMessage

from counterpoint.proto.errors import Permanent
from counterpoint.proto.ids import new_id
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import TaskProposed, TaskResumed
from counterpoint.router.notify.deliveries import ATTEMPTS
from counterpoint.router.notify.handlers import CALLS_LIMIT
from counterpoint.router.notify.lanes import CALLS_AT_ONCE, PAUSE_LIMIT_S, Lane

DAYS = timedelta(days=1)


@asynccontextmanager
async def call_under_way(house: NotifiedHouse, hook: HookReceiver) -> AsyncIterator[SentMessage]:
    """A call that is not answered, and that ends with the block as by a kill; its message stays due."""
    hook.replies = [Reply(hangs=True)]
    house.task()
    await house.tell(proposed())
    (timer,) = house.memory.timers
    due = NotificationDue.model_validate(timer.data)
    call = asyncio.create_task(house._run(house.notifications.on_due, due, timer.id))
    await hook.until(1)
    yield timer
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


def resumed(task_id: str = "incident-1") -> TaskResumed:
    return TaskResumed(task_id=task_id, reason="an override")


def signature_of(request: HookRequest) -> str:
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


async def test_a_call_of_a_process_that_was_killed_is_made_again_under_the_same_key(hook: HookReceiver) -> None:
    house = NotifiedHouse([webhook(hook)], timeout_s=30)
    async with call_under_way(house, hook) as timer:
        pass
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
    house = NotifiedHouse([webhook(hook)], timeout_s=30)
    async with call_under_way(house, hook):
        await house.settle()
        ((_, error),) = house.dead
        assert "under way" in str(error)
        assert len(hook.received) == 1


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


def test_a_receiver_that_fails_for_ever_pauses_no_longer_than_the_limit() -> None:
    lane = Lane(lambda: 0.0)
    for _ in range(3000):
        lane.note(failed=True)
    assert lane.delay_s() == PAUSE_LIMIT_S
    lane.note(failed=False)
    lane.note(failed=True)
    assert lane.delay_s() == PAUSE_LIMIT_S, "a pause that was begun is kept"


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


async def test_shadow_tasks_and_other_projects_send_no_notification(hook: HookReceiver) -> None:
    house = NotifiedHouse([webhook(hook)])
    house.task(shadow=True)
    await house.tell(proposed())
    house.memory.put("tasks", "theirs", house.memory.one("tasks", "incident-1").body, "billing")
    await house.tell(proposed("theirs"))
    assert house.deliveries() == []
