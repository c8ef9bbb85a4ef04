"""Faults of the model and kills of the developer: an investigation ends once and pays nothing twice."""

import json
import random
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from agents.developer_memory import START
from agents.obedient import call
from agents.process_death import ProcessDeath
from agents.scripted_model import ACT, RUNBOOK, Script, ScriptedGateway, delivered, failure, proposes, shelf_of

from counterpoint.developer.agent import investigation as limits
from counterpoint.proto.errors import CounterpointError, Denied, Permanent, Problem, Transient
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import TaskWorked


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ((Transient("the provider returned HTTP 429"),), "not available: the provider returned HTTP 429"),
        ((Denied("budget", "0.1 USD"),), "not available"),
        ((Denied("label", "clearance"),), "not available"),
        ((Permanent("unknown_outcome"),), "not available"),
        ((call("runs"), Transient("the provider is not reachable")), "not reachable"),
        (("I cannot help with that.",), "not a JSON object"),
        (("",), "the reply is empty"),
        (('{"tool": ',), "not a JSON object"),
        (('{"tool": "search", "arguments": {"text": NaN}}',), "not a JSON object"),
        (('{"hypothesis": "x"}',), "neither a tool nor a proposal"),
        (("[" * 5000 + "{}",), "neither a tool nor a proposal"),
        ((call("override", instruction="x"),), "there is no such tool"),
        ((call("search"),), "the arguments of search are text"),
        ((call("search", text="x", project="other"),), "the arguments of search are text"),
        ((call("runs"),), "this call was made before"),
    ],
)
async def test_each_fault_ends_in_the_result_of_the_rules_with_a_caveat(script: tuple[Script, ...], why: str) -> None:
    rules, model = await delivered(shelf_of()), ScriptedGateway(*script)
    worked = await delivered(shelf_of(), model)
    assert (worked.outcome, worked.text, worked.confidence) == (rules.outcome, rules.text, rules.confidence)
    assert worked.findings.caveats[:-1] == rules.findings.caveats
    assert why in worked.findings.caveats[-1]
    assert len(model.asked) <= 1 + limits.MAX_PROBLEMS


async def test_a_reply_that_is_cut_off_is_no_reply() -> None:
    worked = await delivered(shelf_of(), ScriptedGateway(proposes(), finish="length"))
    assert "the reply was cut off" in worked.findings.caveats[-1]


async def test_a_model_that_only_looks_ends_at_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    number = iter(range(100))
    model = ScriptedGateway(lambda messages: call("search", text=f"words {next(number)}"))
    worked = await delivered(shelf_of(), model)
    assert len(model.asked) == limits.MAX_TURNS
    assert "no tool calls are left" in worked.findings.caveats[-1]
    monkeypatch.setattr(limits, "MAX_PROBLEMS", 100)
    worked = await delivered(
        shelf_of(), again := ScriptedGateway(lambda messages: call("search", text=f"{next(number)}"))
    )
    assert len(again.asked) == limits.MAX_TURNS
    assert "it made no supported proposal in 8 turns" in worked.findings.caveats[-1]
    monkeypatch.setattr(limits, "BUDGET_CHARS", 10)
    worked = await delivered(
        shelf_of(), short := ScriptedGateway(lambda messages: call("search", text=f"{next(number)}"))
    )
    assert len(short.asked) == 1
    assert "have reached 10 characters" in worked.findings.caveats[-1]


async def test_without_time_no_model_is_asked() -> None:
    model = ScriptedGateway(proposes())
    late = await delivered(shelf_of(), model, failure(deadline=START - timedelta(days=1000)))
    none = await delivered(shelf_of(), model, deadline_s=0.0)
    assert not model.asked
    assert late.findings.caveats[-1] == none.findings.caveats[-1]
    assert "the time limit was reached" in none.findings.caveats[-1]


async def test_a_reply_that_memory_refuses_to_keep_is_not_handed_out() -> None:
    shelf = shelf_of()

    def refuses(commit: Commit) -> CounterpointError | None:
        said = "secret words" in str([write.body for write in commit.writes])
        return Permanent("sensitive", (Problem(field="turns", problem="a key"),)) if said else None

    shelf.refuses = refuses
    worked = await delivered(shelf, ScriptedGateway(proposes(cause="secret words [2].")))
    assert "memory does not keep its reply: sensitive" in worked.findings.caveats[-1]
    assert worked.text == (await delivered(shelf_of())).text


COURSES: dict[str, tuple[Script, ...]] = {
    "proposed": (call("search", text="flush the name cache"), call("runs"), proposes("Flush the name cache")),
    "unusable": (call("runs"), "nothing", "nothing"),
    "gone": (call("runs"), Transient("away")),
}


@pytest.mark.parametrize("name", COURSES)
async def test_killed_anywhere_it_goes_on_and_nothing_is_paid_twice(name: str) -> None:
    script = COURSES[name]
    whole, model, passes = shelf_of(), ScriptedGateway(*script), Counter[str]()
    whole.before = whole.after = model.after = lambda what: passes.update(["all"])
    worked = await delivered(whole, model)
    assert passes["all"] >= 15
    for kill in range(passes["all"]):
        shelf, again, left = shelf_of(), ScriptedGateway(*script), iter(range(kill, -1, -1))

        def passed(what: str, left: Any = left) -> None:
            if next(left, None) == 0:
                raise ProcessDeath

        shelf.before = shelf.after = again.after = passed
        with pytest.raises(ProcessDeath):
            await delivered(shelf, again)
        assert await delivered(shelf, again) == worked, kill
        assert shelf.steps == whole.steps
        assert [each.decision for each in shelf.decisions()] == [each.decision for each in whole.decisions()]
        assert len(shelf.line()) == len(whole.line())
        if name != "gone":
            assert len(again.asked) == len(model.asked), kill


async def test_evidence_that_is_gone_after_a_kill_is_not_cited() -> None:
    shelf, model = shelf_of(), ScriptedGateway(proposes())

    def after(what: str) -> None:
        if what == "commit" and shelf.steps[-1] == "01-turn":
            raise ProcessDeath

    shelf.after = after
    with pytest.raises(ProcessDeath):
        await delivered(shelf, model)
    shelf.after = lambda what: None
    for chunk in [each for each in shelf.kept("chunks") if each.startswith("runbook.md")]:
        shelf.drop("chunks", chunk)
    worked = await delivered(shelf, model)
    assert ACT not in (worked.text or "")
    assert "what it cited has changed" in worked.findings.caveats[-1]
    assert len(model.asked) == 1


async def test_a_call_whose_prompt_has_changed_after_a_kill_is_not_made_again() -> None:
    shelf, model = shelf_of(), ScriptedGateway(proposes())

    def killed(what: str) -> None:
        raise ProcessDeath

    model.after = killed
    with pytest.raises(ProcessDeath):
        await delivered(shelf, model)
    shelf.ingest("runbook.md", RUNBOOK.replace("Restart", "Reload"))
    worked = await delivered(shelf, model)
    assert "key_reused" in worked.findings.caveats[-1]
    assert len(model.asked) == 1


REPLIES: tuple[Script, ...] = (
    call("search", text="name cache"), call("runs"), call("runs"), call("attempts", text="dns"), call("no_such_tool"),
    "prose", "", '{"tool"', proposes(), proposes("Flush the name cache"), proposes("coffee"),
    json.dumps({"proposal": {"action": "Reboot everything [2]."}}), Transient("the provider returned HTTP 429"),
    Denied("budget", "0.1 USD"), Permanent("unknown_outcome"),
)  # fmt: skip


async def chaos(seed: int) -> None:
    """A run of random replies and faults, killed at random: it ends once, within its limits, as the rules decide."""
    dice = random.Random(seed)
    script = [dice.choice(REPLIES) for _ in range(limits.MAX_TURNS)]
    rules = await delivered(shelf_of())
    shelf, model = shelf_of(), ScriptedGateway(*script)
    kills = dice.randrange(6)

    def perhaps_killed(what: str) -> None:
        nonlocal kills
        if kills and dice.random() < 0.15:
            kills -= 1
            raise ProcessDeath

    shelf.before = shelf.after = model.after = perhaps_killed
    while not any(each["type"] == TaskWorked.TYPE for each in shelf.sent):
        with suppress(ProcessDeath):
            await delivered(shelf, model)
    worked, run = shelf.worked(), shelf.items("checkpoints")[0].body
    assert (worked.outcome, worked.confidence) == (rules.outcome, rules.confidence)
    assert len(run["turns"]) <= limits.MAX_TURNS
    assert len(model.kept) <= limits.MAX_TURNS
    prompts_sent = [json.dumps(prompt) for prompt in model.asked]
    faults = sum(isinstance(each, CounterpointError) for each in script)
    assert len(prompts_sent) - len(set(prompts_sent)) <= faults, "no prompt is paid twice"
    assert len(shelf.kept("attempts")) == 1
    assert len(shelf.line()) == len(shelf.decisions()) + 1 == len(set(shelf.steps)) + 3
    if run["ending"] != "proposed":
        assert worked.text == rules.text


@pytest.mark.parametrize("seed", range(40))
async def test_random_faults_and_kills_end_within_the_limits(seed: int) -> None:
    await chaos(seed)


@pytest.mark.slow
async def test_five_hundred_random_faults_and_kills_end_within_the_limits() -> None:
    for seed in range(40, 540):
        await chaos(seed)
