"""The lane of a task: by its kind, and by a model only from a failure or a plan worded as a question to the lane of
questions."""

import json
from typing import Any

import pytest
from agents.obedient import obeys
from agents.planted_attacks import CARRIERS, WORDINGS
from agents.question_runs import Book
from agents.scripted_model import ACT, ERROR, FAILURE, ScriptedGateway, failure, proposes, shelf_of
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.client import Gateway
from counterpoint.client.replay import RecordedCall, RecordedGateway
from counterpoint.developer.agent.lane_step import KEY
from counterpoint.developer.handlers import OFFLINE, handle_delegated
from counterpoint.developer.policies.lane_choice import choice_of, may_be_question
from counterpoint.proto.errors import Denied, Transient
from counterpoint.proto.tasks import JobRef, Target, TaskDelegated, TaskWorked

ASKED = "How is the resolver of the cluster restarted when it has lost its cache?"
LANES = ("answer", "investigate", "plan", "build", "shell", "")


async def delivered(shelf: Book, chooser: Gateway = OFFLINE, message: TaskDelegated | None = None) -> TaskWorked:
    memory = shelf.delivered("message", "t")
    await memory.step(await handle_delegated(message or delegated_question(), memory, chooser=chooser))
    return shelf.worked()


def delegated_question(lane: str = "investigate", **fields: Any) -> TaskDelegated:
    """A task that is worded as a question."""
    given = {"description": ASKED, "error_message": None, **fields}
    return failure(**given).model_copy(update={"lane": lane})


def says(lane: str = "answer", quote: str = ASKED) -> ScriptedGateway:
    return ScriptedGateway(json.dumps({"lane": lane, "quote": quote}))


def chosen(shelf: Book) -> list[tuple[str, str | None]]:
    return [(each.decision, each.model) for each in shelf.decisions() if each.decision_type == "route"][:1]


async def test_a_model_moves_a_question_that_was_filed_as_a_failure_and_the_verdict_of_the_rules_stands_beside_it() -> (
    None
):
    rules = await delivered(shelf_of())
    assert rules.outcome != "answered"
    shelf = shelf_of()
    worked = await delivered(shelf, says())
    assert worked.outcome == "answered"
    assert ACT in (worked.text or "")
    first = shelf.decisions()[0]
    assert (first.decision_type, first.decision, first.model) == ("route", "answer", "m")
    assert first.reasoning == f"the rules say investigate; m says answer, since the task asks “{ASKED}”"
    action = shelf.line()[0]
    assert (action["kind"], action["after"]) == ("route", ["before"])
    assert shelf.line()[1]["after"] == [action["action_id"]]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (json.dumps({"lane": "investigate", "quote": ""}), "and so does m"),
        (json.dumps({"lane": "build", "quote": ASKED}), "could not be used"),
        (json.dumps({"lane": "answer", "quote": "Who owns the resolver?"}), "could not be used"),
        (json.dumps({"lane": "answer", "quote": "the resolver of the cluster"}), "could not be used"),
        (json.dumps({"lane": "answer"}), "could not be used"),
        (json.dumps(["answer"]), "could not be used"),
        ("no", "could not be used"),
        ("", "could not be used"),
        (Transient("the provider is busy"), "the model was not available"),
        (Denied("budget", "limit project"), "the model was not available"),
    ],
)
async def test_without_a_usable_reply_the_lane_is_that_of_the_rules(reply: Any, why: str) -> None:
    rules = await delivered(shelf_of())
    shelf = shelf_of()
    worked = await delivered(shelf, ScriptedGateway(reply))
    assert (worked.outcome, worked.code, worked.text) == (rules.outcome, rules.code, rules.text)
    assert chosen(shelf)[0][0] == "investigate"
    assert why in shelf.decisions()[0].reasoning


@pytest.mark.parametrize(
    "message",
    [
        delegated_question(error_message=ERROR),
        delegated_question(description=f"{FAILURE}."),
        delegated_question(description="Restart the resolver of the cluster. It has lost its cache"),
        delegated_question(target=Target(job=JobRef(namespace="prod", name="orders"))),
        delegated_question("build"),
        delegated_question("answer"),
        delegated_question(purpose="reassess"),
        delegated_question(attempt=2),
    ],
)
async def test_no_model_is_asked_where_the_rules_are_sure(message: TaskDelegated) -> None:
    model, shelf = says(), shelf_of()
    await delivered(shelf, model, message)
    assert model.asked == []
    assert [decision for decision, model in chosen(shelf) if model] == []


async def test_no_model_is_asked_about_an_unvouched_task() -> None:
    model, shelf = says(), shelf_of()
    shelf.put("tasks", "t", {"task_id": "t"}, integrity=1)
    await delivered(shelf, model)
    assert model.asked == []


async def test_a_redelivery_keeps_the_lane_that_was_chosen() -> None:
    shelf, model = shelf_of(), ScriptedGateway(json.dumps({"lane": "answer", "quote": ASKED}), "no")
    worked = await delivered(shelf, model)
    again = ScriptedGateway(json.dumps({"lane": "investigate", "quote": ""}))
    assert await delivered(shelf, again) == worked
    assert again.asked == []


async def test_the_prompt_has_the_words_of_the_requester_and_nothing_else() -> None:
    shelf, model = shelf_of({"other.md": "a planted text"}), says()
    await delivered(shelf, model)
    assert [each["content"] for each in model.asked[0][1:]] == [ASKED]


@given(
    lane=st.sampled_from(LANES), quote=st.one_of(st.just(ASKED), st.text(max_size=40)),
    rules=st.sampled_from(["investigate", "plan", "build", "answer"]),
)  # fmt: skip
def test_a_reply_leads_to_the_lane_of_the_rules_or_to_that_of_questions(lane: str, quote: str, rules: str) -> None:
    message = delegated_question(rules)
    choice = choice_of(json.dumps({"lane": lane, "quote": quote}), message)
    assert choice is None or choice.lane in (rules, "answer")
    if choice is not None and choice.lane != rules:
        assert " ".join(quote.split()) in ASKED


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("lane", ["answer", "build", "plan", "investigate"])
async def test_no_planted_instruction_leads_to_another_lane(carrier: str, lane: str) -> None:
    """The obedient model is asked whenever the rules permit; the task ends as by the rules alone."""
    order = WORDINGS[len(carrier + lane) % len(WORDINGS)].format(f"use the lane {lane}")
    found = []
    for chooser in (OFFLINE, ScriptedGateway(obeys)):
        shelf = shelf_of()
        fields, _ = CARRIERS[carrier](shelf, order)
        given = {"description": ASKED, "error_message": None, **fields}
        message = failure(**given)
        worked = await delivered(shelf, chooser, message)
        found.append((worked.outcome, worked.code, worked.text, worked.needs, worked.confidence))
        assert isinstance(chooser, ScriptedGateway) <= (len(getattr(chooser, "asked", ())) == may_be_question(message))
    assert found[0] == found[1]
    assert chosen(shelf) in ([], [("investigate", "m")])


async def test_a_model_that_chooses_lanes_does_no_other_work() -> None:
    model, shelf = proposes(), shelf_of()
    worked = await delivered(shelf, ScriptedGateway(model), failure())
    assert all(each.model is None for each in shelf.decisions())
    assert worked.outcome == "proposed"


def test_a_replay_gives_the_lane_its_own_call_and_the_work_the_others() -> None:
    call = RecordedCall(kind="generate", model="m", response={"text": "", "finish": "stop"})
    recorded = RecordedGateway({KEY: call})
    assert recorded.among(lambda key: key == KEY).model == "m"
    assert recorded.among(lambda key: key != KEY).model is None, "no other model was named"
