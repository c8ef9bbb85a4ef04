"""Incidents in DataHub: written once per task on an entity that exists, resolved with the task, and inert."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from agents.hook_receiver import HookReceiver, HookRequest, Reply, hook_receiver
from agents.notified_house import DONE, EVIL, PROPOSED, NotifiedHouse, completed, course, proposed
from pydantic import ValidationError

from counterpoint.proto.tasks import TaskCancelled, TaskFailed
from counterpoint.router.notify.receivers import Receiver

JOB = {"job": {"namespace": "prod", "name": "orders.load(v2),x"}}
FLOW = "urn:li:dataFlow:(airflow,orders,PROD)"
TASK = f"urn:li:dataJob:({FLOW},load%28v2%29%2Cx)"
WRITTEN = "/openapi/v3/entity/incident?async=false"


def existence(answer: Any) -> Reply:
    """DataHub's answer to the question whether it knows an entity."""
    return Reply(body={"data": {"entityExists": answer}})


@pytest_asyncio.fixture
async def hub() -> AsyncIterator[HookReceiver]:
    async with hook_receiver() as receiver:
        receiver.reply = Reply(body=[{"urn": "urn:li:incident:1"}])
        yield receiver


def datahub(hub: HookReceiver, **fields: Any) -> Receiver:
    made = {"name": "catalog", "kind": "datahub", "url": f"{hub.url}/", "secret": "pat-1", "private": True}
    return Receiver.model_validate(made | fields)


def writes(hub: HookReceiver) -> list[HookRequest]:
    """The incidents that were written."""
    return [one for one in hub.received if one.path == WRITTEN]


def info(one: HookRequest) -> dict[str, Any]:
    """The aspect of one incident."""
    ((entity),) = one.json
    aspect: dict[str, Any] = entity["incidentInfo"]["value"]
    return aspect


async def test_an_incident_is_written_on_the_entity_that_exists_and_resolved_with_its_task(hub: HookReceiver) -> None:
    house = NotifiedHouse([datahub(hub)])
    hub.replies = [existence(False), existence(True)]
    house.task(target=JOB, priority="high", error_message="disk full")
    await course(house)
    asked = [one.json["variables"]["urn"] for one in hub.received if one.path == "/api/graphql"]
    assert asked == [TASK, FLOW]
    assert {one.headers["authorization"] for one in hub.received} == {"Bearer pat-1"}
    assert len({one.json[0]["urn"] for one in writes(hub)}) == 1
    assert [info(one)["status"]["state"] for one in writes(hub)] == ["ACTIVE", "ACTIVE", "ACTIVE", "RESOLVED"]
    first = info(writes(hub)[0])
    assert (first["entities"], first["priority"], first["type"]) == ([FLOW], 1, "OPERATIONAL")
    assert "```text\ndisk full\n```" in first["description"]
    assert {json.dumps(info(one)["created"]) for one in writes(hub)} == {json.dumps(first["created"])}
    assert house.dead == []


async def test_an_entity_that_datahub_does_not_know_is_not_made(hub: HookReceiver) -> None:
    house = NotifiedHouse([datahub(hub)])
    hub.reply = existence(False)
    house.task(target=JOB, **PROPOSED)
    await house.tell(proposed())
    await house.settle(timedelta(days=10))
    assert [one.path for one in hub.received] == ["/api/graphql"] * 2
    assert house.dead == []


async def test_a_data_set_is_found_by_its_platform_and_a_task_without_either_writes_nothing(hub: HookReceiver) -> None:
    house = NotifiedHouse([datahub(hub, environment="DEV")])
    hub.replies = [existence(True)]
    house.task(
        "with", target={"dataset": {"namespace": "postgres://db:5432", "name": "shop.public.orders"}}, **PROPOSED
    )
    await house.tell(proposed("with"))
    await house.settle()
    expected = "urn:li:dataset:(urn:li:dataPlatform:postgres,shop.public.orders,DEV)"
    assert info(writes(hub)[0])["entities"] == [expected]
    house.task("without", **PROPOSED)
    await house.tell(proposed("without"))
    await house.settle()
    assert len(writes(hub)) == 1


@pytest.mark.parametrize(
    "answer", [Reply(body={"errors": [{"message": "no"}], "data": None}), Reply(body="?"), Reply(status=500)]
)
async def test_without_a_clear_answer_nothing_is_written_and_the_call_is_repeated(
    hub: HookReceiver, answer: Reply
) -> None:
    house = NotifiedHouse([datahub(hub)])
    hub.replies = [answer, existence(True)]
    house.task(target=JOB, **PROPOSED)
    await house.tell(proposed())
    await house.settle()
    assert writes(hub) == []
    await house.settle(timedelta(minutes=1))
    assert len(writes(hub)) == 1


async def test_a_refused_token_is_a_dead_letter(hub: HookReceiver) -> None:
    house = NotifiedHouse([datahub(hub)])
    hub.reply = Reply(status=401)
    house.task(target=JOB, **PROPOSED)
    await house.tell(proposed())
    await house.settle(timedelta(days=10))
    assert len(hub.received) == 1
    ((_, error),) = house.dead
    assert "HTTP 401" in str(error)
    assert "pat-1" not in str(error)


async def test_a_call_of_a_process_that_was_killed_writes_the_same_incident_again(hub: HookReceiver) -> None:
    house = NotifiedHouse([datahub(hub)])
    hub.replies = [existence(True), Reply(hangs=True)]
    house.task(target=JOB, **PROPOSED)
    await house.tell(proposed())
    (timer,) = house.memory.timers
    calling = asyncio.ensure_future(house.settle())
    await hub.until(2)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    hub.released.set()
    house.restart()
    hub.replies = [existence(True)]
    house.clock.now += timedelta(minutes=1)
    house.memory.timers.append(timer)
    await house.settle()
    first, second = writes(hub)
    assert first.json[0]["urn"] == second.json[0]["urn"]


async def test_texts_of_an_incident_are_inert(hub: HookReceiver) -> None:
    house = NotifiedHouse([datahub(hub)])
    hub.replies = [existence(True)]
    texts = {"error_message": EVIL, "proposal": EVIL, "context": {"owner": EVIL}}
    house.task(target=JOB, **(PROPOSED | texts))
    await house.tell(proposed())
    await house.settle()
    description = info(writes(hub)[0])["description"]
    assert description.count(EVIL) == 3
    outside = re.sub(r"^(`{3,})text\n.*?\n\1$", "", description, flags=re.DOTALL | re.MULTILINE)
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
    assert re.fullmatch(r"[\w :\n]*", outside)


async def test_a_failed_task_leaves_the_incident_open_and_a_cancelled_one_closes_it(hub: HookReceiver) -> None:
    house = NotifiedHouse([datahub(hub)])
    for number, (state, message) in enumerate(
        (
            (
                "failed",
                TaskFailed.model_validate({"task_id": "t0", "code": "x", "reason": "r", "attempts": 1, "findings": {}}),
            ),
            ("cancelled", TaskCancelled(task_id="t1", by="me")),
        )
    ):
        hub.replies = [existence(True)]
        house.task(f"t{number}", target=JOB, **PROPOSED)
        await house.tell(proposed(f"t{number}"))
        await house.settle()
        house.task(f"t{number}", state=state, waiting_for=None)
        await house.tell(message)
        await house.settle()
    assert [info(one)["status"]["state"] for one in writes(hub)] == ["ACTIVE", "ACTIVE", "ACTIVE", "RESOLVED"]


async def test_only_troubleshooting_is_told_by_default(hub: HookReceiver) -> None:
    house = NotifiedHouse([datahub(hub)])
    house.task(target=JOB, **(DONE | {"kind": "develop"}))
    await house.tell(completed())
    await house.settle(timedelta(days=1))
    assert hub.received == []


@pytest.mark.parametrize("fields", [{"url": None}, {"platform": "a,b"}, {"environment": ""}])
def test_a_wrong_configuration_is_refused(hub: HookReceiver, fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        datahub(hub, **fields)
