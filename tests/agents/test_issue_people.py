"""Edits, comments and commands of people on an issue: they are read once and never overwritten."""

import asyncio

from agents.forge_repository import BOT, ForgeRequest
from agents.issue_house import HOUR, house_of, proposed
from agents.scripted_forge import ScriptedForge

from counterpoint.proto.interventions import CancelTask
from counterpoint.proto.issues import IssueDue
from counterpoint.router.issues.marks import marked_issue


async def test_edits_of_people_are_never_overwritten(forge: ScriptedForge) -> None:
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


async def test_users_without_a_principal_or_a_right_have_no_effect(github: ScriptedForge) -> None:
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
