"""The context of an investigation: the line whole and newest first, the session, reviews of similar tasks."""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from agents.developer_memory import START, by_words
from agents.obedient import call
from agents.process_death import ProcessDeath
from agents.question_runs import Book
from agents.scripted_model import ERROR, ScriptedGateway, delivered, proposes, shelf_of

from counterpoint.developer.agent import context

BEFORE = START - timedelta(days=1)


async def _unlike_attempts(query: str, texts: Sequence[str]) -> list[float]:
    """No attempt of a session is found by its likeness."""
    return [
        0.0 if text.startswith("unlike") else each
        for text, each in zip(texts, await by_words(query, texts), strict=True)
    ]


def with_action(shelf: Book, number: int, reasoning: str, **fields: Any) -> None:
    body = {"action_id": f"a{number}", "task_id": "t", "agent": "router", "kind": "route", "reasoning": reasoning}
    shelf.put("actions", f"a{number}", {**body, "at": (BEFORE + timedelta(seconds=number)).isoformat(), **fields})


def with_session_attempt(shelf: Book, task_id: str, tried: str, **fields: Any) -> None:
    body = {
        "attempt_id": f"at-{task_id}", "task_id": task_id, "project": "shop", "attempt": 1, "description": "unlike",
        "tried": tried, "outcome": "succeeded", "by": "alice", "by_kind": "person", "at": BEFORE.isoformat(),
    }  # fmt: skip
    shelf.similarity = _unlike_attempts
    shelf.put("attempts", f"at-{task_id}", {**body, **fields}, integrity=2)


def with_session(shelf: Book, *task_ids: str) -> None:
    body = {"session_id": "s", "project": "shop", "task_ids": task_ids, "summary": "", "opened_at": BEFORE.isoformat()}
    shelf.put("sessions", "s", {**body, "continued_at": BEFORE.isoformat()})


def with_review(shelf: Book, record_id: str, text: str, **fields: Any) -> None:
    body = {"task_id": "other", "attempt": 1, "text": text, "rules": ["number"], "sent_back": True}
    shelf.put("judge_memory", record_id, {**body, "at": BEFORE.isoformat(), **fields})


async def last_prompt(shelf: Book, *script: Any) -> str:
    """The text of the last prompt."""
    model = ScriptedGateway(*(script or (proposes(),)))
    await delivered(shelf, model)
    return "\n".join(each["content"] for each in model.asked[-1])


async def test_the_first_prompt_has_the_line_newest_first_with_results() -> None:
    shelf = shelf_of()
    with_action(shelf, 1, "lane investigate by its kind")
    with_action(shelf, 2, "delegated to the developer", agent="manager", kind="delegate", result="attempt 1")
    text = await last_prompt(shelf)
    assert "manager delegate: delegated to the developer\nresult: attempt 1" in text
    assert text.index("delegated to the developer") < text.index("lane investigate by its kind")


async def test_a_line_over_the_limit_loses_its_oldest_actions_and_no_action_is_cut() -> None:
    shelf = shelf_of()
    draw = random.Random(7)
    lengths = [draw.randint(1, 4_000) for _ in range(60)]
    for number, length in enumerate(lengths):
        with_action(shelf, number, f"<{number}>" + "x" * length + f"</{number}>")
    text = await last_prompt(shelf)
    whole = [number for number in range(60) if f"<{number}>" + "x" * lengths[number] + f"</{number}>" in text]
    assert whole == list(range(whole[0], 60))
    assert [number for number in range(60) if f"<{number}>" in text] == whole
    used = sum(lengths[number] for number in whole)
    assert used <= context.LINE_CHARS < used + lengths[whole[0] - 1] + 60 * 40


async def test_an_attempt_of_the_session_is_shown_and_may_be_proposed() -> None:
    shelf = shelf_of()
    act = "Renew every lease with `gatectl renew`."
    with_session_attempt(shelf, "first", act)
    with_session_attempt(shelf, "later", "Never shown: its task came after this one.")
    with_session(shelf, "first", "t", "later")
    model = ScriptedGateway(proposes("Renew every lease", kind="attempt"))
    worked = await delivered(shelf, model)
    text = "\n".join(each["content"] for each in model.asked[-1])
    assert "in this session; succeeded" in text
    assert "Never shown" not in text
    assert act in (worked.text or "")


@pytest.mark.parametrize("hidden", [{"shadow": True}, {"outcome": "superseded"}])
async def test_an_attempt_that_was_never_shown_is_not_shown(hidden: dict[str, Any]) -> None:
    shelf = shelf_of()
    with_session_attempt(shelf, "first", "Swap the cable of the ldap gateway.", **hidden)
    with_session(shelf, "first", "t")
    assert "Swap the cable" not in await last_prompt(shelf)


async def test_a_session_of_another_task_shows_nothing() -> None:
    shelf = shelf_of()
    with_session_attempt(shelf, "first", "Swap the cable of the ldap gateway.")
    with_session(shelf, "first")
    assert "Swap the cable" not in await last_prompt(shelf)


async def test_reviews_of_similar_tasks_are_shown_and_support_nothing() -> None:
    shelf = shelf_of()
    with_review(shelf, "r1", f"{ERROR}: send back: Purge the ldap.internal records of the resolver. occurs nowhere")
    with_review(shelf, "r2", f"{ERROR}: of this task itself", task_id="t")
    model = ScriptedGateway(proposes("Purge the ldap", kind="review"))
    worked = await delivered(shelf, model)
    text = "\n".join(each["content"] for each in model.asked[0])
    assert "Purge the ldap.internal records" in text
    assert "of this task itself" not in text
    assert "Purge" not in (worked.text or "")


async def test_a_redelivery_shows_the_same_line_and_pays_no_prompt_twice() -> None:
    shelf = shelf_of()
    with_action(shelf, 1, "lane investigate by its kind")
    model = ScriptedGateway(call("runs"), call("search", text="name cache"), proposes())
    killed: list[str] = []

    def kill(what: str) -> None:
        if what == "commit" and len(killed) < 2:
            killed.append(what)
            raise ProcessDeath

    shelf.after = kill
    for _ in range(2):
        with pytest.raises(ProcessDeath):
            await delivered(shelf, model)
    worked = await delivered(shelf, model)
    assert worked.outcome == "proposed"
    assert len(model.asked) == 3
    assert "assess" not in "\n".join(each["content"] for each in model.asked[-1])
