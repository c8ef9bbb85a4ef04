"""A dead letter of an intake that was sent again and that the bus then lost: it comes once more as what it was."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from bus.small_house import SmallHouse, alive, eventually, project, small_house

from counterpoint.bus import Service
from counterpoint.memory.letters import RETRY
from counterpoint.memory.principals import ADMINISTRATOR
from counterpoint.proto import subjects
from counterpoint.proto.memory import Commit, List, Write
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


async def test_what_was_sent_again_is_its_senders_also_from_the_log(tmp_path: Path) -> None:
    place = project()
    async with small_house(tmp_path, COUNTERPOINT_ADMIN_TOKEN="the administrator's token") as house:
        service = house.service("router")
        register(service, timedelta(days=1))
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
