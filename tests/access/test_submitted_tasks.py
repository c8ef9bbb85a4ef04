"""Whether a task that has just been submitted has ended is known without the record."""

from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from memory_service.house import House, task_body

from counterpoint.guard.policy import policy
from counterpoint.memory.access import diode
from counterpoint.memory.record.database import Database
from counterpoint.proto.memory import Outgoing, Write
from counterpoint.proto.tasks import TaskRouted, TaskSubmitted


async def test_the_state_of_a_task_is_not_read_when_it_has_just_been_submitted(house: House, project: str) -> None:
    sent = tuple(Outgoing(type=each.TYPE, data={"task_id": "t-1"}) for each in (TaskSubmitted, TaskRouted))
    routed = (await house.apply("router", house.standing(project, "t-1"), messages=sent)).message_ids[-1]
    ends = datetime.now(UTC) + timedelta(minutes=1)
    grant = diode.capability(policy(), TaskRouted.TYPE, "manager", project, "t-1", routed, ends)
    with patch.object(Database, "reading", side_effect=AssertionError):
        assert not await house.causes.has_ended(grant)
    ended = Write(store="tasks", id="t-1", body={**task_body("t-1"), "state": "cancelled"})
    await house.apply("manager", house.delivery(routed), writes=(ended,))
    assert await house.causes.has_ended(grant)
