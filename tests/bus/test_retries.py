"""Messages that memory publishes to an intake: a lost one comes again unchanged, one that was taken does not;
and a project whose intake is full does not delay others."""

import asyncio
import json
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bus.small_house import SmallHouse, alive, eventually, project, small_house
from bus.test_end_lost import relaying
from nats.js.errors import APIError

from counterpoint.bus import Service
from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.client import send
from counterpoint.memory.access.principals import ADMINISTRATOR
from counterpoint.memory.commit import relay
from counterpoint.memory.commit.dead_letters import RETRY
from counterpoint.proto import subjects
from counterpoint.proto.memory import Commit, List, Write
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import SubmitTask, TaskSubmitted
from counterpoint.router.handlers import register

EVENT = {"specversion": "1.0", "id": "build-7", "source": "/ci", "type": SubmitTask.TYPE}
TASK = {"kind": "question", "description": "Why does the login with AKIA" + "Z7QF3MPLKD2WXYTB fail?"}


async def _sent_again(service: Service, place: str) -> None:
    """Have the project's one dead letter sent again, as the router does for an administrator."""
    memory = service.memory(place, ADMINISTRATOR)
    (found,) = await memory.query(List(store="dead_letters"))
    (letter,) = found.items
    body: dict[str, Any] = {**letter.body, "state": RETRY}
    write = Write(store="dead_letters", id=letter.id, body=body, expect=letter.version)
    await memory.step(Commit(writes=(write,)))


async def _at_rest(house: SmallHouse, place: str) -> bool:
    """Whether what was sent again has been put back since, and nothing of the intake is left to be handled."""
    put_back = (
        "SELECT count(*) FROM restored r JOIN messages m ON m.id = r.message_id WHERE m.project = $1 AND m.type = $2"
    )
    if not await house.record.fetchval(put_back, place, SubmitTask.TYPE) or await house.unfinished():
        return False
    async with house.client("provisioner") as client:
        router = await client.jetstream().consumer_info(subjects.INTAKE, "router")
    return bool(router.delivered.stream_seq) and not (router.num_ack_pending or router.num_pending)


async def test_a_message_sent_again_keeps_its_sender_after_a_loss_of_the_bus(tmp_path: Path) -> None:
    place = project()
    async with small_house(tmp_path, COUNTERPOINT_ADMIN_TOKEN="the administrator's token") as house:
        service = house.service("router")
        register(service, timedelta(days=1), FairLimiter(50))
        async with alive(service), house.client("publisher") as outsider:
            headers = {"content-type": "application/cloudevents+json"}
            body = json.dumps({**EVENT, "data": TASK}).encode()
            await outsider.publish(subjects.of(SubmitTask.TYPE, place), body, headers=headers)
            await eventually(lambda: house.dead_letters(place))
            await _sent_again(service, place)
            await eventually(lambda: house.sent(place, TaskSubmitted.TYPE))
            await house.wipe_bus()
            await eventually(lambda: _at_rest(house, place))
            (submitted,) = await house.sent(place, TaskSubmitted.TYPE)
            assert submitted["submitted_by"] == "/ci"
            assert len(await house.dead_letters(place)) == 1


async def _opened(house: SmallHouse, place: str, count: int) -> None:
    """As many incidents of the project are tasks for the router."""
    lineage = house.service("lineage")
    async with alive(lineage):
        for n in range(count):
            task = SubmitTask(kind="troubleshoot", description=f"{place} {n}", task_id=f"incident-{n}")
            await lineage.memory(place, None).step(Commit(messages=(send(task, task_id=task.task_id),)))


async def test_a_message_that_the_router_took_is_not_put_back(house: SmallHouse) -> None:
    place, service = project(), house.service("router")
    register(service, timedelta(days=1), FairLimiter(50))
    async with house.client("provisioner") as client:
        created = (await client.jetstream().stream_info(subjects.INTAKE)).created
    await eventually(lambda: utc_now() - created > timedelta(seconds=3))
    async with alive(service):
        await _opened(house, place, 2)
        await eventually(lambda: house.sent(place, TaskSubmitted.TYPE))
        async with house.client("provisioner") as client:

            async def taken() -> bool:
                info = await client.jetstream().stream_info(subjects.INTAKE)
                return info.state.messages == 0 and not await house.unfinished()

            await eventually(taken)
        async with relaying(house) as (_, reconciler):
            for _ in range(2):
                await reconciler.reconcile()
        put_back = "SELECT count(*) FROM restored r JOIN messages m ON m.id = r.message_id WHERE m.project = $1"
        assert await house.record.fetchval(put_back, place) == 0


async def test_a_message_refused_by_a_full_intake_waits_and_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with small_house(tmp_path) as house:
        await _a_full_intake(house, monkeypatch)


async def _a_full_intake(house: SmallHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    full, other = project(), project()
    async with house.client("publisher") as outsider:
        js = outsider.jetstream()
        waiting = 0
        while True:
            try:
                await js.publish(f"intake.{full}.task", b'{"kind": "question", "description": "%d"}' % waiting)
            except APIError:
                break
            waiting += 1
    await _opened(house, full, 2)
    await _opened(house, other, 1)

    async def pending(place: str) -> int:
        count = "SELECT count(*) FROM pending JOIN messages ON id = message_id WHERE pending.project = $1 AND type = $2"
        return int(await house.record.fetchval(count, place, SubmitTask.TYPE))

    await eventually(lambda: _none(pending(other)))
    assert await pending(full) == 2

    monkeypatch.setattr(relay, "_SWEEP_LIMIT", 2)
    await house.memory.stop()
    await house.record.execute("UPDATE pending SET due_at = now() - interval '1 minute' WHERE project = $1", full)
    again = "INSERT INTO pending (message_id, project, timer, due_at) SELECT id, project, true, now() FROM messages"
    await house.record.execute(f"{again} WHERE project = $1 AND type = $2", other, SubmitTask.TYPE)
    async with relaying(house) as (relayed, _):
        running = asyncio.create_task(relayed.run())
        await eventually(lambda: _none(pending(other)))
        running.cancel()
        await asyncio.wait({running})
    assert await pending(full) == 2
    await house.memory.start()
    service = house.service("router")
    register(service, timedelta(days=1), FairLimiter(50))
    async with alive(service):
        await eventually(lambda: _none(pending(full)))
        submitted = "SELECT count(*) FROM messages WHERE project = $1 AND type = $2"
        wanted = waiting + 2

        async def all_there() -> bool:
            return bool(await house.record.fetchval(submitted, full, TaskSubmitted.TYPE) == wanted)

        await eventually(all_there)
        assert len(await eventually(lambda: house.sent(other, TaskSubmitted.TYPE))) == 1


async def _none(count: Awaitable[int]) -> bool:
    return await count == 0
