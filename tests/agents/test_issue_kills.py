"""Processes that are killed, or work on one message together, open and change each issue once."""

import asyncio

import pytest
from agents.forge_repository import ForgeRequest
from agents.issue_house import DAY, HOUR, SLOWER, IssueHouse, house_of, planned, proposed, tracker_of
from agents.scripted_forge import ScriptedForge

from counterpoint.proto.findings import Findings
from counterpoint.proto.issues import IssueDue
from counterpoint.proto.tasks import TaskFailed


async def hangs(house: IssueHouse, forge: ScriptedForge) -> bool:
    """Deliver the due message until it ends or a call of the forge hangs, and return whether one hangs. The delivery is
    cancelled then."""
    (due,) = [timer for timer in house.memory.timers if timer.type == IssueDue.TYPE]
    call, hanging = asyncio.create_task(house.deliver(due)), asyncio.create_task(forge.hangs.wait())
    await asyncio.wait([call, hanging], return_when=asyncio.FIRST_COMPLETED)
    has_ended = call.done()
    call.cancel()
    hanging.cancel()
    await asyncio.gather(call, hanging, return_exceptions=True)
    return not has_ended


async def test_a_router_killed_at_any_call_opens_each_step_once(github: ScriptedForge) -> None:
    calls, ended = 0, 1
    while ended:
        calls, ended = calls + 1, 0
        for effect in (False, True):
            github.issues.clear()
            github.labels.clear()
            github.hangs.clear()
            house = IssueHouse([tracker_of(github, todos="issues")])
            await house.tell(planned(house))
            seen = len(github.asked)

            def killed(asked: ForgeRequest, seen: int = seen, effect: bool = effect, at: int = calls) -> bool:
                is_the_one = len(github.asked) - seen == at
                if is_the_one and effect:
                    github.answer(asked)
                return is_the_one

            github.hang = killed
            ended += await hangs(house, github)
            github.hang = lambda asked: False
            house.restart()
            await house.settle(2 * HOUR)
            titles = [issue.title for issue in github.issues.values()]
            assert titles == ["orders_ingest.fetch", "Ask @ann about #12", "Write it"], (calls, effect)
            assert all(issue.labels == ["counterpoint"] for issue in github.issues.values()), (calls, effect)
            assert len([body for body in github.bodies() if "- [ ] #2\n- [ ] #3" in body]) == 1, (calls, effect)
    assert calls > 8


@pytest.mark.parametrize("point", ["before the call", "after the call"])
async def test_a_router_that_is_killed_opens_exactly_one_issue(forge: ScriptedForge, point: str) -> None:
    """Also if the clock of the forge is wrong by more than a year."""
    forge.clock -= 400 * DAY
    house = house_of(forge)
    house.task()
    await house.tell(proposed())
    (due,) = [timer for timer in house.memory.timers if timer.type == IssueDue.TYPE]

    def killed(asked: ForgeRequest) -> bool:
        if asked.method == "POST" and asked.path.endswith("/issues"):
            if point == "after the call":
                forge.answer(asked)
            return True
        return False

    forge.hang = killed
    call = asyncio.create_task(house.deliver(due))
    await forge.hangs.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert house.record()["state"] == "calling"
    forge.hang = lambda asked: False
    house.restart()
    await house.settle(2 * HOUR)
    assert len(forge.issues) == 1
    assert house.record()["number"] == 1
    assert forge.issues[1].labels == ["counterpoint", "counterpoint: proposed"]


@pytest.mark.parametrize("forge", SLOWER, indirect=True)
async def test_a_router_killed_at_any_call_ends_with_the_same_issue(forge: ScriptedForge) -> None:
    """The handler ends at its n-th call, once without and once with the effect of the call."""
    calls = 1
    while True:
        ended = 0
        for effect in (False, True):
            forge.issues.clear()
            forge.labels.clear()
            forge.hangs.clear()
            forge.released.clear()
            house = house_of(forge)
            house.task(state="completed", waiting_for=None, needs=[{"kind": "outcome", "what": "what", "how": "how"}])
            await house.tell(TaskFailed(task_id="incident-1", code="x", reason="y", attempts=1, findings=Findings()))
            seen = len(forge.asked)

            def killed(asked: ForgeRequest, seen: int = seen, effect: bool = effect, at: int = calls) -> bool:
                if len(forge.asked) - seen != at:
                    return False
                if effect:
                    forge.answer(asked)
                return True

            forge.hang = killed
            ended += await hangs(house, forge)
            forge.hang = lambda asked: False
            house.restart()
            await house.settle(2 * HOUR)
            (issue,) = forge.issues.values()
            assert (issue.state, issue.labels) == ("closed", ["counterpoint"]), (calls, effect)
            questions = [body for body in forge.bodies() if "nobody has said" in body]
            assert len(questions) == 1, (calls, effect)
            assert not house.dead
        if not ended:
            break
        calls += 1
    assert calls > 5


async def test_a_label_that_a_killed_router_has_put_is_taken_away(forge: ScriptedForge) -> None:
    house = house_of(forge)
    house.task()
    await house.tell(proposed())
    (due,) = [timer for timer in house.memory.timers if timer.type == IssueDue.TYPE]

    def killed(asked: ForgeRequest) -> bool:
        puts_labels = asked.path.endswith("/issues/1/labels") or "add_labels" in str(asked.body)
        if asked.writes and puts_labels:
            forge.answer(asked)
        return asked.writes and puts_labels

    forge.hang = killed
    call = asyncio.create_task(house.deliver(due))
    await forge.hangs.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert "counterpoint: proposed" in forge.issues[1].labels
    forge.hang = lambda asked: False
    house.restart()
    await house.end()
    await house.settle(HOUR)
    assert forge.issues[1].labels == ["counterpoint"]


async def test_two_processes_with_one_message_open_one_issue(github: ScriptedForge) -> None:
    house, other = house_of(github), house_of(github)
    other.memory = house.memory
    house.task()
    await house.tell(proposed())
    (due,) = [timer for timer in house.memory.timers if timer.type == IssueDue.TYPE]
    github.hang = lambda asked: asked.method == "POST"
    call = asyncio.create_task(house.deliver(due))
    await github.hangs.wait()
    github.hang = lambda asked: False
    await other.deliver(due)
    assert len(github.issues) == 0
    assert other.deferred == ["another process compares this issue"]
    github.released.set()
    await call
    github.released.clear()
    await other.settle(HOUR)
    assert len(github.issues) == 1
