"""Tasks are issues of a forge: one each, in step with the task, and never against a person's word."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from agents.issue_house import PROJECT, IssueHouse, completed, proposed, tracker_of
from agents.scripted_forge import BOT, ForgeRequest, ScriptedForge, scripted_forge

from counterpoint.proto.errors import Permanent
from counterpoint.proto.findings import Findings
from counterpoint.proto.interventions import CancelTask
from counterpoint.proto.issues import IssueDue
from counterpoint.proto.tasks import TaskCompleted, TaskFailed
from counterpoint.router.issues.marks import marked_issue
from counterpoint.router.issues.poll import RECONCILE

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KINDS = ("github", "gitlab", "gitea")
SLOWER = ("github", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("gitlab", "gitea")))
"""One dialect in the short run, all in the long one."""


@pytest_asyncio.fixture(params=KINDS)
async def forge(request: pytest.FixtureRequest) -> AsyncIterator[ScriptedForge]:
    async with scripted_forge(request.param) as started:
        yield started


@pytest_asyncio.fixture
async def github() -> AsyncIterator[ScriptedForge]:
    async with scripted_forge("github") as started:
        yield started


def house_of(forge: ScriptedForge, **fields: Any) -> IssueHouse:
    return IssueHouse([tracker_of(forge, **fields)])


# an issue and its task


async def test_a_proposal_opens_one_issue_and_the_end_of_its_task_closes_it(forge: ScriptedForge) -> None:
    house = house_of(forge, labels=("incident", "on call"))
    await house.open()
    (issue,) = forge.issues.values()
    assert (issue.title, issue.state) == ("orders_ingest.fetch", "open")
    assert "no route to db" in issue.body
    assert "Restart it" in issue.body
    assert issue.labels == ["incident", "on call", "counterpoint: proposed"]
    assert not issue.comments
    await house.end(result="Restarted it")
    assert (issue.state, issue.labels) == ("closed", ["incident", "on call"])
    (card,) = forge.bodies()
    assert "is resolved" in card
    assert "Restarted it" in card
    assert not house.dead
    assert house.record()["state"] == "synced"


async def test_a_state_that_changes_often_is_one_comment_that_is_edited(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    for text in ("Restart the other", "Unlock the user"):
        house.task(proposal=text)
        await house.tell(proposed(proposal=text))
        await house.settle()
    (card,) = forge.bodies()
    assert "Unlock the user" in card
    writes = len(forge.writes())
    for _ in range(3):
        await house.tell(proposed())
        await house.settle()
    assert len(forge.writes()) == writes, "what is the same is not written again"


async def test_what_no_tracker_wants_opens_no_issue(github: ScriptedForge) -> None:
    house = house_of(github, severity="high", kinds=["troubleshoot"])
    house.task()
    await house.tell(proposed())
    house.task("question", kind="question", priority="urgent")
    await house.tell(proposed("question"))
    house.task("shadow", shadow=True, priority="urgent")
    await house.tell(proposed("shadow"))
    elsewhere = IssueHouse([tracker_of(github, project="payments")])
    elsewhere.task()
    await elsewhere.tell(proposed())
    for each in (house, elsewhere):
        await each.settle()
    assert not github.asked
    house.task("urgent", priority="urgent")
    await house.tell(proposed("urgent"))
    await house.settle()
    assert len(github.issues) == 1


async def test_an_owner_is_assigned_when_the_issue_is_opened(forge: ScriptedForge) -> None:
    house = house_of(forge, owners={"team-ingest": "bea"})
    await house.open(context={"owner": "team-ingest"})
    assert forge.issues[1].assignees == (["5"] if forge.kind == "gitlab" else ["bea"])


async def test_an_owner_who_has_left_is_not_assigned(forge: ScriptedForge) -> None:
    house = house_of(forge, owners={"team-ingest": "bea"})
    if forge.kind == "gitlab":
        forge.before = lambda asked: (200, []) if asked.path.endswith("/users") else None
    else:
        forge.before = lambda asked: (422, None) if asked.body and asked.body.get("assignees") else None
    await house.open(context={"owner": "team-ingest"})
    assert forge.issues[1].assignees == []


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"state": "failed"}, "open"),
        ({"state": "completed", "resolution": "proposed"}, "open"),
        ({"state": "completed", "resolution": "quiet"}, "closed"),
        ({"state": "cancelled"}, "closed"),
    ],
)
async def test_an_issue_stays_open_while_there_is_work_left(
    github: ScriptedForge, fields: dict[str, str], state: str
) -> None:
    house = house_of(github)
    await house.open()
    await house.end(**fields)
    assert github.issues[1].state == state
    never = house_of(github, close=False)
    await never.open(task_id="incident-2")
    await never.end("incident-2", **fields)
    assert github.issues[2].state == "open"


async def test_closing_what_nobody_has_tried_says_how_it_ended(github: ScriptedForge) -> None:
    house = house_of(github)
    await house.open()
    await house.end(resolution="proposed")
    github.person_closes(1)
    for _ in range(2):
        await house.hook()
        await house.settle()
    (outcome,) = house.outcomes()
    assert outcome.fixed_by == "something_else"


async def test_a_label_that_is_refused_stops_nothing_else(forge: ScriptedForge) -> None:
    house = house_of(forge)
    forge.before = lambda asked: (422, None) if asked.writes and "label" in f"{asked.path} {asked.body}" else None
    await house.open()
    house.task(proposal="Another")
    await house.tell(proposed())
    await house.settle()
    assert "Another" in forge.bodies()[0]
    await house.end()
    await house.settle(HOUR)
    assert forge.issues[1].state == "closed"
    assert forge.issues[1].labels == []


async def test_an_issue_names_that_of_the_incident_before(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    await house.open(task_id="incident-2", context={"previous_incident": "incident-1"})
    await house.open(task_id="incident-3", context={"previous_incident": "unknown"})
    assert "- the same job before: #1\n" in forge.issues[2].body
    assert "before: #" not in forge.issues[1].body + forge.issues[3].body


async def test_above_the_clearance_an_issue_has_ids_and_states_only(github: ScriptedForge) -> None:
    house = house_of(github)
    await house.open(label=2)
    issue = github.issues[1]
    assert issue.title == "Task incident-1"
    assert "no route" not in issue.body
    assert "Restart it" not in issue.body


async def test_a_task_that_came_from_an_issue_uses_it(forge: ScriptedForge) -> None:
    person = forge.person_opens("The import fails", "Since noon")
    house = house_of(forge)
    path = "/-/issues/1" if forge.kind == "gitlab" else "/issues/1"
    await house.open(source_ref=f"{forge.url}/{forge.repo}{path}")
    assert list(forge.issues) == [1]
    assert (person.title, person.body) == ("The import fails", "Since noon")
    assert "Restart it" in forge.bodies()[0]
    await house.end()
    assert person.state == "closed"


async def test_the_steps_of_a_plan_are_a_task_list(forge: ScriptedForge) -> None:
    house = house_of(forge)
    plan = "# Plan\n\n## Steps\n\n1. Ask @ann about #12\n2. Write it\n\n```\n- not this\n```\n\n## Open\n\n- Who?"
    house.task("plan-1", kind="plan", state="completed", waiting_for=None, resolution="planned", result=plan)
    await house.tell(completed("plan-1", "planned", plan))
    await house.settle()
    issue = forge.issues[1]
    items = [line for line in issue.body.splitlines() if line.startswith("- [ ]")]
    assert [item.replace("\u200b", "") for item in items] == ["- [ ] 1. Ask @ann about #12", "- [ ] 2. Write it"]
    assert "@ann" not in issue.body.split("**Plan**")[0]
    assert issue.state == "open", "its steps are still to be done"


PLAN = "# Plan\n\n## Steps\n\n1. Ask @ann about #12\n2. Write it\n3. write  it\n"


def planned(house: IssueHouse, text: str = PLAN) -> TaskCompleted:
    """A finished plan."""
    house.task("plan-1", kind="plan", state="completed", waiting_for=None, resolution="planned", result=text)
    return completed("plan-1", "planned", text)


async def test_the_steps_of_a_plan_become_issues_where_that_is_wanted(forge: ScriptedForge) -> None:
    house = IssueHouse([tracker_of(forge, todos="issues")])
    house.task("plan-1", kind="plan", result=PLAN)
    await house.tell(proposed("plan-1"))
    await house.settle()
    assert [issue.title for issue in forge.issues.values()] == ["orders_ingest.fetch"], "the plan is not finished"
    await house.tell(planned(house))
    await house.settle()
    plan, *steps = forge.issues.values()
    assert [issue.title for issue in steps] == ["Ask @ann about #12", "Write it"]
    assert all("A step of the plan in #1." in issue.body for issue in steps)
    assert all(issue.labels == ["counterpoint"] for issue in steps)
    assert "**To do**" not in plan.body
    (listed,) = [body for body in forge.bodies() if "**To do**" in body]
    assert listed.splitlines()[-2:] == ["- [ ] #2", "- [ ] #3"]

    steps[0].state, steps[1].title = "closed", "Write it by Friday"
    await house.tell(planned(house, PLAN.replace("3. write  it", "3. Test it")))
    await house.settle(2 * HOUR)
    assert [issue.title for issue in forge.issues.values()][1:] == [
        "Ask @ann about #12",
        "Write it by Friday",
        "Test it",
    ]
    assert (steps[0].state, plan.state) == ("closed", "open")
    (listed,) = [body for body in forge.bodies() if "**To do**" in body]
    assert listed.splitlines()[-3:] == ["- [ ] #2", "- [ ] #3", "- [ ] #4"]
    assert await house.hook(2, marked_issue(steps[0].body)) is None


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
            (due,) = [timer for timer in house.memory.timers if timer.type == IssueDue.TYPE]
            call, stopped = asyncio.create_task(house.deliver(due)), asyncio.create_task(github.hangs.wait())
            await asyncio.wait([call, stopped], return_when=asyncio.FIRST_COMPLETED)
            ended += not call.done()
            call.cancel()
            stopped.cancel()
            await asyncio.gather(call, stopped, return_exceptions=True)
            github.hang = lambda asked: False
            house.restart()
            await house.settle(2 * HOUR)
            titles = [issue.title for issue in github.issues.values()]
            assert titles == ["orders_ingest.fetch", "Ask @ann about #12", "Write it"], (calls, effect)
            assert all(issue.labels == ["counterpoint"] for issue in github.issues.values()), (calls, effect)
            assert len([body for body in github.bodies() if "- [ ] #2\n- [ ] #3" in body]) == 1, (calls, effect)
    assert calls > 8


# once


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
            (due,) = [timer for timer in house.memory.timers if timer.type == IssueDue.TYPE]
            call = asyncio.create_task(house.deliver(due))
            stopped = asyncio.create_task(forge.hangs.wait())
            await asyncio.wait([call, stopped], return_when=asyncio.FIRST_COMPLETED)
            ended += not call.done()
            call.cancel()
            stopped.cancel()
            await asyncio.gather(call, stopped, return_exceptions=True)
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


# people


async def test_what_people_write_is_never_written_by_us(forge: ScriptedForge) -> None:
    """Also at the moment of each of our calls."""
    house = house_of(forge)
    await house.open()
    edits = 0

    def meanwhile(asked: ForgeRequest) -> None:
        nonlocal edits
        edits += 1
        forge.person_edits(1, title=f"Title {edits}", body=f"Words {edits}", assignees=["bea"])
        if "mine" not in forge.issues[1].labels:
            forge.issues[1].labels.append("mine")

    forge.before = meanwhile  # type: ignore[assignment]
    house.task(proposal="Another")
    await house.tell(proposed(proposal="Another"))
    await house.settle()
    await house.end()
    issue = forge.issues[1]
    assert edits > 5
    assert (issue.title, issue.body, issue.assignees) == (f"Title {edits}", f"Words {edits}", ["bea"])
    assert "mine" in issue.labels
    assert issue.state == "closed"


async def test_a_label_or_comment_that_a_person_took_away_stays_away(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    house.task(proposal="Another")
    await house.tell(proposed())
    await house.settle()
    forge.person_edits(1, labels=["counterpoint: proposed"], comments={})
    house.task(proposal="A third")
    await house.tell(proposed())
    await house.settle()
    house.task(proposal="A fourth")
    await house.tell(proposed())
    await house.settle()
    assert forge.issues[1].labels == ["counterpoint: proposed"]
    assert forge.bodies() == []


async def test_closing_there_closes_here_and_asks_for_the_lesson(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    forge.person_closes(1)
    assert await house.hook() == "incident-1"
    await house.settle()
    (outcome,) = house.outcomes()
    assert (outcome.outcome, outcome.fixed_by, outcome.note) == ("succeeded", "something_else", None)
    assert (outcome.by, outcome.by_kind, outcome.evidence) == ("ann", "person", "reported")
    await house.end(needs=[{"kind": "outcome", "what": "what fixed it", "how": "counterpoint outcome"}])
    question = forge.bodies()[-1]
    assert "nobody has said what fixed it" in question
    assert "`fixed by`" in question
    forge.person_comments(1, "Fixed by unlocking the user\n\nin LDAP")
    await house.hook()
    await house.settle()
    lesson = house.outcomes()[-1]
    assert (lesson.fixed_by, lesson.note) == ("something_else", "unlocking the user\n\nin LDAP")
    assert len(house.outcomes()) == 2


async def test_an_issue_closed_as_not_planned_cancels_its_task(github: ScriptedForge) -> None:
    house = house_of(github)
    await house.open()
    github.person_closes(1, reason="not_planned")
    await house.hook()
    await house.settle()
    assert not house.outcomes()
    (cancel,) = [sent.message for sent in house.memory.log if sent.type == CancelTask.TYPE]
    assert (cancel.task_id, cancel.by) == ("incident-1", "ann")  # type: ignore[attr-defined]


async def test_a_command_is_read_once_however_often_it_is_told(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    for text in ("I think\nfixed by rain", "> fixed by quoting", "not fixed: same error", "thanks"):
        forge.person_comments(1, text)
    for _ in range(3):
        await house.hook()
        await house.settle()
    house.restart()
    tried = len(house.memory.queries)
    await house.hook()
    await house.settle()
    assert not [query for query in house.memory.queries[tried:] if getattr(query, "store", "") == "principals"]
    (outcome,) = house.outcomes()
    assert (outcome.outcome, outcome.note) == ("failed", "same error")


async def test_who_has_no_principal_or_no_right_has_no_effect(github: ScriptedForge) -> None:
    house = house_of(github, users={"ann": "ann", "eve": "eve", "gone": "nobody"})
    await house.open()
    github.person_comments(1, "fixed by magic", by="mallory")
    github.person_closes(1, by="mallory")
    await house.hook()
    await house.settle()
    assert not house.outcomes()
    assert github.bodies() == ["fixed by magic"], "strangers are not answered"
    github.person_comments(1, "fixed by magic", by="eve")
    github.person_comments(1, "fixed by magic", by="gone")
    await house.hook()
    await house.settle()
    assert not house.outcomes()
    assert [("was not taken over" in body) for body in github.bodies() if "counterpoint:comment" in body] == [True] * 2
    await house.hook()
    await house.settle()
    assert len(github.bodies()) == 5, "a refusal is told once"


async def test_a_stranger_cannot_make_a_comment_of_ours(github: ScriptedForge) -> None:
    house = house_of(github)
    await house.open()
    mark = marked_issue(github.issues[1].body)
    forged = [f"<!-- counterpoint:comment {each} -->" for each in (f"{mark} card", "card " + "0" * 16, "card")]
    for text in forged:
        github.person_comments(1, text, by="mallory")
    house.task(proposal="Another")
    await house.tell(proposed())
    await house.settle()
    *theirs, card = github.bodies()
    assert theirs == forged
    assert "Another" in card


async def test_an_outcome_that_contradicts_another_is_refused_by_name(github: ScriptedForge) -> None:
    house = house_of(github)
    known = {"1": {"outcome": "succeeded", "evidence": "reported", "by": "bea", "fixed_by": "proposal"}}
    await house.open(state="completed", waiting_for=None, outcomes=known)
    assert not github.issues, "what has ended is not opened by an old event"
    await house.open(state="input_required", waiting_for="outcome", outcomes={})
    house.task(state="completed", waiting_for=None, outcomes=known)
    github.person_comments(1, "not fixed")
    await house.hook()
    await house.settle()
    assert not house.outcomes()
    assert "contradicts the reported outcome" in github.bodies()[-1].replace("\\", "")


async def test_an_issue_that_a_person_reopens_stays_open(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    await house.end()
    forge.person_edits(1, state="open", closed_by=None)
    for _ in range(2):
        await house.hook()
        await house.settle()
    assert forge.issues[1].state == "open"


# loops


async def test_our_own_edits_coming_back_have_no_effect(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    house.task(proposal="Another")
    await house.tell(proposed())
    await house.settle()
    writes = len(forge.writes())
    for _ in range(5):
        assert await house.hook() == "incident-1"
        await house.settle()
    assert len(forge.writes()) == writes
    assert not house.outcomes()
    assert all(comment["author"] == BOT for comment in forge.issues[1].comments.values())


async def test_a_webhook_that_comes_before_the_end_of_the_opening_is_ours(github: ScriptedForge) -> None:
    house = house_of(github)
    house.task()
    await house.tell(proposed())
    (due,) = [timer for timer in house.memory.timers if timer.type == IssueDue.TYPE]
    house.memory.timers.remove(due)
    github.hang = lambda asked: asked.path.endswith("/comments")
    call = asyncio.create_task(house.deliver(due))
    await github.hangs.wait()
    mark = marked_issue(github.issues[1].body)
    assert await house.hook(1, mark) == "incident-1"
    assert await house.hook(2, "copied") is None
    github.hang = lambda asked: False
    github.released.set()
    await call
    github.released.clear()
    await house.settle(HOUR)
    assert house.record()["state"] == "synced"
    assert await house.hook(2, mark) is None, "a copy of our text is not our issue"
    assert len(github.issues) == 1


# polling


async def test_without_webhooks_a_poll_finds_what_people_did(forge: ScriptedForge) -> None:
    house = house_of(forge, poll_s=300)
    for number in range(4):
        await house.open(task_id=f"incident-{number}")
    forge.person_opens("Something else")
    await house.settle(HOUR / 4)
    forge.clock += DAY
    forge.person_comments(3, "fixed by itself")
    await house.settle(timedelta(seconds=400))
    (outcome,) = house.outcomes()
    assert (outcome.task_id, outcome.fixed_by) == ("incident-2", "nothing")
    asked = len(forge.asked)
    await house.settle(timedelta(seconds=2000))
    quiet = [each for each in forge.asked[asked:] if not each.path.endswith("/issues")]
    assert not quiet, "an issue that has not changed is not read again"


async def test_every_hour_all_open_issues_are_compared(github: ScriptedForge) -> None:
    house = house_of(github, poll_s=600)
    await house.open()
    await house.open(task_id="incident-2")
    await house.end("incident-2")
    github.issues[1].comments[7] = {"body": "fixed by rain", "author": "ann", "at": github.issues[1].at}
    await house.settle(RECONCILE + timedelta(minutes=10))
    (outcome,) = house.outcomes()
    assert outcome.note == "rain"
    asked = len(github.asked)
    await house.settle(RECONCILE + timedelta(minutes=10))
    again = {each.path for each in github.asked[asked:] if re.search(r"/issues/\d+$", each.path)}
    assert again == {"/api/v3/repos/shop/orders/issues/1"}, "one that is over is of no interest"


async def test_polls_go_on_when_the_forge_comes_back(github: ScriptedForge) -> None:
    house = house_of(github, poll_s=600)
    await house.open()
    github.before = lambda asked: (503, None)
    await house.settle(DAY)
    github.before = lambda asked: None
    github.clock += 2 * DAY
    github.person_closes(1)
    await house.settle(2 * HOUR)
    assert len(house.outcomes()) == 1
    assert not house.dead


async def test_a_tracker_that_was_removed_is_polled_no_more_and_again_when_it_is_back(github: ScriptedForge) -> None:
    house = house_of(github, poll_s=600)
    await house.open()
    trackers, house.trackers = house.trackers, []
    house.restart()
    await house.settle(DAY)
    assert not house.memory.timers
    house.trackers = trackers
    house.restart()
    await house.open(task_id="incident-2")
    github.person_comments(1, "fixed by rain")
    await house.settle(HOUR)
    assert len(house.outcomes()) == 1


# failures


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (429, {"Retry-After": "1800"}, None),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1772422200"}, None),
        (403, {"Retry-After": "1800"}, {"message": "You have exceeded a secondary rate limit"}),
        (429, {"RateLimit-Reset": "1772422200"}, None),
        (503, {"Retry-After": "1800"}, None),
    ],
)
async def test_a_forge_that_asks_for_a_pause_gets_it_from_all_issues(
    forge: ScriptedForge, status: int, headers: dict[str, str], body: Any
) -> None:
    """1772422200 is half an hour after the beginning."""
    house = house_of(forge)
    for number in range(3):
        house.task(f"incident-{number}")
        await house.tell(proposed(f"incident-{number}"))
    forge.before = lambda asked: (status, body, headers)
    await house.settle(timedelta(minutes=25))
    assert len(forge.asked) == 1
    forge.before = lambda asked: None
    await house.settle(HOUR)
    assert len(forge.issues) == 3
    assert not house.dead


async def test_a_secondary_limit_does_not_wait_for_the_first_one(github: ScriptedForge) -> None:
    house = house_of(github)
    headers = {"X-RateLimit-Remaining": "4000", "X-RateLimit-Reset": "1772422200"}
    github.before = lambda asked: (403, {"message": "You have exceeded a secondary rate limit"}, headers)
    house.task()
    await house.tell(proposed())
    await house.settle(timedelta(seconds=30))
    assert len(github.asked) == 1
    github.before = lambda asked: None
    await house.settle(timedelta(minutes=3))
    assert len(github.issues) == 1


async def test_a_limit_that_is_reached_pauses_before_it_is_exceeded(github: ScriptedForge) -> None:
    house = house_of(github)
    reached = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1772422200"}
    github.before = lambda asked: (*github.answer(asked)[:2], reached)  # type: ignore[return-value]
    house.task()
    await house.tell(proposed())
    await house.settle(timedelta(minutes=25))
    assert len(github.asked) == 1
    github.before = lambda asked: None
    await house.settle(HOUR)
    assert len(github.issues) == 1


@pytest.mark.parametrize("forge", SLOWER, indirect=True)
async def test_a_forge_that_is_down_for_a_day_loses_nothing(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open(task_id="before")
    forge.before = lambda asked: (500, None)
    for number in range(5):
        house.task(f"incident-{number}")
        await house.tell(proposed(f"incident-{number}"))
    await house.end("before")
    await house.settle(DAY)
    forge.before = lambda asked: None
    await house.settle(2 * DAY)
    assert len(forge.issues) == 6
    assert forge.issues[1].state == "closed"
    assert not house.dead


async def test_after_three_days_it_is_a_dead_letter_that_can_be_retried(github: ScriptedForge) -> None:
    house = house_of(github)
    github.locked = True
    house.task()
    await house.tell(proposed())
    await house.settle(4 * DAY)
    ((message, error),) = house.dead
    assert isinstance(error, Permanent)
    assert "HTTP 404" in str(error)
    assert github.url not in str(error)
    assert github.token not in str(error)
    github.locked = False
    await house._run(house.issues.on_due, message, "retry-1")
    assert (len(github.issues), house.record()["state"]) == (1, "synced")


@pytest.mark.parametrize("forge", SLOWER, indirect=True)
async def test_a_right_that_is_lost_is_no_deleted_issue(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    forge.locked = True
    house.task(proposal="Another")
    await house.tell(proposed())
    await house.settle(HOUR)
    assert house.record()["state"] == "pending"
    forge.locked = False
    await house.settle(DAY)
    assert "Another" in forge.bodies()[0]


@pytest.mark.parametrize("how", ["deleted", "moved"])
async def test_an_issue_that_is_gone_is_left_alone(forge: ScriptedForge, how: str) -> None:
    if (forge.kind, how) == ("gitea", "moved"):
        pytest.skip("Gitea moves no issues")
    house = house_of(forge)
    await house.open()
    forge.issues[1].gone = how
    forge.issues[1].state = "closed"
    forge.issues[1].closed_by = "ann"
    await house.hook()
    await house.settle()
    assert (house.record()["state"], house.record()["left"]) == ("left", how)
    await house.end()
    assert len(forge.issues) == 1
    assert not house.outcomes()
    assert not house.dead


async def test_a_tracker_that_names_another_repository_leaves_its_issues_alone(github: ScriptedForge) -> None:
    house = house_of(github)
    await house.open()
    async with scripted_forge("github") as other:
        stranger = other.person_opens("Another thing", "which is not ours")
        house.trackers = [tracker_of(other)]
        house.restart()
        await house.end()
        assert (stranger.state, stranger.labels, stranger.comments) == ("open", [], {})
        assert (house.record()["state"], house.record()["left"]) == ("left", "moved")
        assert not other.writes()


async def test_a_tracker_of_another_project_now_is_told_nothing_of_this_one(github: ScriptedForge) -> None:
    house = house_of(github)
    house.task()
    await house.tell(proposed())
    house.trackers = [tracker_of(github, project="billing")]
    house.restart()
    await house.settle()
    assert not github.asked
    ((_, error),) = house.dead
    assert "no tracker of project orders" in str(error)


async def test_a_pull_request_finds_the_task_of_a_synchronized_issue(github: ScriptedForge) -> None:
    house = house_of(github)
    await house.open()
    memory = house.memory.memory("m1", now=house.now)
    url = house.trackers[0].repository_url
    assert await house.issues.tasks_of(memory, url, (1, 2)) == ("incident-1",)
    assert await house.issues.tasks_of(memory, f"{url}-other", (1,)) == ()


@pytest.mark.parametrize("kind", ["github", "gitea"])
async def test_a_repository_that_was_renamed_is_followed(kind: str) -> None:
    async with scripted_forge(kind) as forge:
        house = house_of(forge)
        await house.open()
        forge.renamed = "shop/sales"
        await house.open(task_id="incident-2")
        await house.end()
        assert len(forge.issues) == 2
        assert forge.issues[1].state == "closed"
        assert not house.dead


async def test_a_redirect_to_another_host_is_not_followed(github: ScriptedForge) -> None:
    async with scripted_forge("github") as other:
        house = house_of(github)
        github.before = lambda asked: (301, None, {"Location": f"{other.url}{asked.path}"})
        house.task()
        await house.tell(proposed())
        await house.settle()
        assert not other.asked
        ((_, error),) = house.dead
        assert "another host" in str(error)


async def test_a_private_address_needs_to_be_allowed(github: ScriptedForge) -> None:
    house = house_of(github, private=False)
    house.task()
    await house.tell(proposed())
    await house.settle()
    assert not github.asked
    assert "private" in str(house.dead[0][1])


@pytest.mark.parametrize("answer", [None, [], {}, {"number": "x"}, [{"number": True}], "text", {"number": 1}])
async def test_an_answer_of_another_form_is_a_failure_that_is_tried_again(github: ScriptedForge, answer: Any) -> None:
    house = house_of(github)
    github.before = lambda asked: (200, answer)
    house.task()
    await house.tell(proposed())
    await house.settle()
    assert house.record()["state"] == "pending"
    assert not house.dead
    github.before = lambda asked: None
    await house.settle(HOUR)
    assert len(github.issues) == 1


async def test_no_record_and_no_log_has_the_token_or_a_word_of_a_person(
    forge: ScriptedForge, capsys: pytest.CaptureFixture[str]
) -> None:
    house = house_of(forge)
    await house.open()
    forge.person_comments(1, "fixed by the word xyzzy", by="mallory")
    forge.person_edits(1, title="plugh")
    await house.hook()
    await house.settle()
    shown = str(house.memory.kept("sync_cursors")) + str(house.memory.log) + "".join(capsys.readouterr())
    assert PROJECT in shown
    for secret in (forge.token, "xyzzy", "plugh"):
        assert secret not in shown
    assert forge.token not in repr(house.trackers)
