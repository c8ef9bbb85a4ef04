"""The steps of a question at memory's real door: what is kept, cited and carried over a restart of both."""

import pytest
from agents.gateway_world import Door, World, delegated, gateway
from agents.process_death import ProcessDeath
from agents.steps import handle_in_steps
from memory_service.house import House

from counterpoint.client import Gateway, Memory
from counterpoint.developer.agent.investigation import Investigation
from counterpoint.developer.rag.run import Run
from counterpoint.guard.policy import policy
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.proto.ids import derived_id
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

NEWS = "What is the latest version of Airflow?"


def message(project: str, text: str) -> TaskDelegated:
    return TaskDelegated(
        task_id="t-1", project=project, session_id="s-1", attempt=1, lane="answer",
        task=SubmitTask(kind="question", description=text),
    )  # fmt: skip


def memory(door: Door, message_id: str, fence: int) -> Memory:
    """The developer's memory while it works on one delivery of a message."""
    return Memory(door, "developer", door.house.delivery(message_id, lives_s=600, fence=fence), utc_now())


async def killed_after(door: Door, step: str, doing: Memory, asked: TaskDelegated, model_client: Gateway) -> None:
    """Work on a message until a step is kept, and no further."""
    done = False

    async def before(subject: str, body: bytes) -> None:
        nonlocal done
        if done:
            raise ProcessDeath
        done = ".commit." in subject and f'"step":"{step}"'.encode() in body

    door.before = before
    with pytest.raises(ProcessDeath):
        await handle_in_steps(asked, doing, model_client)
    door.before = None


@pytest.mark.parametrize("step", ["01-retrieve", "02-evaluate"])
async def test_web_results_stay_untrusted_after_a_restart_of_both(
    house: House, door: Door, outside: World, project: str, step: str
) -> None:
    outside.pages = [{"title": "Airflow 9 is out", "url": "https://example.org/9", "content": "news"}]
    asked, message_id = message(project, NEWS), await delegated(house, project, "t-1")
    async with gateway(door, ProviderLimits(search_url=f"{outside.url}/search")) as (url, _):
        asking = Gateway(url, searches_web=True)
        await killed_after(door, step, memory(door, message_id, 1), asked, asking)
        house.restart()
        again = memory(door, message_id, 2)
        commit = await handle_in_steps(asked, again, asking)
        reply = await again.step(commit)
        await asking.close()
    assert len(outside.seen) == 1, "the web is searched once"
    worked = next(n for n, each in enumerate(commit.messages) if each.type == TaskWorked.TYPE)
    assert "https://example.org/9" in str(commit.messages[worked].data["needs"])
    assert house.sent[reply.message_ids[worked]].row.integrity == 0


async def test_a_run_that_has_ended_is_kept_as_ended(house: House, door: Door, project: str) -> None:
    """Its last step kept and its result not: the next delivery only hands it in."""
    asked, message_id = message(project, "Which colour has the moon?"), await delegated(house, project, "t-1")
    first = memory(door, message_id, 1)
    await handle_in_steps(asked, first, Gateway(None))
    house.restart()
    again = memory(door, message_id, 2)
    item = await again.get("checkpoints", derived_id(message_id, "run"))
    assert item is not None
    kept = Run.model_validate(item.body)
    assert (kept.next, kept.ending, kept.steps) == (None, "insufficient_evidence", item.version)
    commit = await handle_in_steps(asked, again, Gateway(None))
    await again.step(commit)
    item = await memory(door, message_id, 2).get("checkpoints", derived_id(message_id, "run"))
    assert item is not None
    assert item.version == kept.steps, "no step is taken again"


async def test_a_second_delivery_shuts_the_first_one_out(house: House, door: Door, project: str) -> None:
    """A paused developer that comes back is refused, and what the newer one kept stays."""
    asked, message_id = message(project, "Which colour has the moon?"), await delegated(house, project, "t-1")
    old, new = memory(door, message_id, 1), memory(door, message_id, 2)
    commit = await handle_in_steps(asked, old, Gateway(None))
    await new.step(await handle_in_steps(asked, new, Gateway(None)))
    with pytest.raises(Exception, match="fence"):
        await old.step(commit)


async def test_redacted_values_are_in_no_checkpoint(house: House, door: Door, project: str) -> None:
    address = "ann@" + "example.com"
    asked, message_id = message(project, f"Who reads the mail of {address}?"), await delegated(house, project, "t-1")
    doing = memory(door, message_id, 1)
    commit = await handle_in_steps(asked, doing, Gateway(None))
    await doing.step(commit)
    async with house.superuser() as connection:
        bodies = await connection.fetch(
            "SELECT body::text FROM records WHERE project = $1 AND task_id = 't-1'", project
        )
        sent = await connection.fetch("SELECT body::text FROM messages WHERE project = $1", project)
    assert len(bodies) > 5
    assert address not in str([*bodies, *sent])


def test_every_text_of_a_run_is_looked_at_by_the_write_filter() -> None:
    """Every field of a checkpoint but numbers and ids is free text to the policy."""
    plain = {"next", "steps", "last", "found", "rewrites", "regenerations", "ending", "spent_s"}
    texts = set(Run.model_fields) - plain
    investigated = {"prompts", "model", "cut", "chars", *plain}
    assert set(policy().stores["checkpoints"].text) == texts | set(Investigation.model_fields) - investigated
