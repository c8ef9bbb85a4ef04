"""The steps of a question at a memory in RAM that keeps each once: killed anywhere, changed meanwhile, without time."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from agents.process_death import ProcessDeath
from agents.question_runs import (
    KNOWN,
    OWNED,
    QUESTION,
    RIGHT,
    ROUTED,
    WORKED,
    WRONG,
    Book,
    Model,
    book,
    delivered,
    question,
)

from counterpoint.client import Gateway
from counterpoint.developer.handlers import OFFLINE, handle_delegated
from counterpoint.developer.rag.graph import MOST_STEPS
from counterpoint.developer.settings import Deadlines
from counterpoint.proto.errors import Conflict, CounterpointError, Denied, Permanent, Problem, Transient
from counterpoint.proto.findings import Citation
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import TaskDelegated

BURNED = "The primary of queue seven burned down with both replicas and the backups of three months. What still works?"
COURSES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "answered by quotes": ((), QUESTION, "answered"),
    "answered by a model": ((ROUTED, RIGHT), QUESTION, "answered"),
    "answered the second time": ((ROUTED, WRONG, RIGHT), QUESTION, "answered"),
    "fallen back": ((ROUTED, WRONG, WRONG), QUESTION, "answered"),
    "declined": ((ROUTED, "NO ANSWER"), QUESTION, "answered"),
    "not found": ((), "Which colour has the parental leave?", "stopped"),
}


def gateway_of(says: tuple[str, ...]) -> Gateway:
    return Model(*says) if says else OFFLINE


@pytest.mark.parametrize("name", COURSES)
async def test_a_developer_killed_anywhere_goes_on_and_does_nothing_twice(name: str) -> None:
    says, text, outcome = COURSES[name]
    whole, model = book(OWNED), gateway_of(says)
    passes = Counter[str]()
    whole.before = whole.after = lambda what: passes.update(["all"])
    await delivered(whole, question(text), model)
    worked, calls = whole.worked(), len(getattr(model, "asked", ()))
    assert worked.outcome == outcome
    assert passes["all"] >= 12
    for kill in range(passes["all"]):
        shelf, gateway, left = book(OWNED), gateway_of(says), iter(range(kill, -1, -1))

        def passed(what: str, left: Any = left) -> None:
            if next(left, None) == 0:
                raise ProcessDeath

        shelf.before = shelf.after = passed
        with pytest.raises(ProcessDeath):
            await delivered(shelf, question(text), gateway)
        await delivered(shelf, question(text), gateway)
        assert shelf.worked() == worked, kill
        assert [each.decision_type for each in shelf.decisions()] == [each.decision_type for each in whole.decisions()]
        assert len({each.decision_id for each in shelf.decisions()}) == len(shelf.decisions())
        assert [action["kind"] for action in shelf.line()] == [action["kind"] for action in whole.line()]
        assert len(getattr(gateway, "asked", ())) == calls, "nobody outside is asked a second time"


async def test_a_developer_cancelled_anywhere_goes_on_and_does_nothing_twice() -> None:
    says, text, _ = COURSES["answered the second time"]
    for turn in range(400):
        shelf, gateway = book(OWNED), gateway_of(says)
        going = asyncio.create_task(delivered(shelf, question(text), gateway))
        for _ in range(turn):
            await asyncio.sleep(0)
        # the first thing is a thread, whose end is no turn of this loop
        going.cancel()
        try:
            await going
        except asyncio.CancelledError:
            await delivered(shelf, question(text), gateway)
        else:
            break
        assert shelf.worked().outcome == "answered"
        assert len(shelf.line()) == len({each.decision_id for each in shelf.decisions()})
    assert turn > 3


async def test_killed_many_times_over_it_still_ends() -> None:
    shelf, gateway, message = book(OWNED), Model(ROUTED, WRONG, RIGHT), question()

    def after(what: str) -> None:
        if what == "commit":
            raise ProcessDeath

    shelf.after, runs = after, 0
    while not any(said["type"] == WORKED for said in shelf.sent):
        with pytest.raises(ProcessDeath):
            await delivered(shelf, message, gateway)
        runs += 1
        assert runs <= MOST_STEPS + 1
    assert shelf.worked().outcome == "answered"
    assert [key for key, _ in gateway.asked] == ["00-route", "03-generate", "05-generate"]


def stopped_after(shelf: Book, node: str) -> None:
    """Have the shelf end it all when the step of a node is kept."""

    def after(what: str) -> None:
        if what == "commit" and shelf.steps[-1].endswith(node):
            raise ProcessDeath

    shelf.after = after


@pytest.mark.parametrize("node", ["retrieve", "evaluate", "generate", "validate"])
async def test_evidence_that_has_changed_meanwhile_is_looked_up_again(node: str) -> None:
    shelf, gateway = book(OWNED), Model(ROUTED, RIGHT, "finance_daily is owned by the ledger team [1].")
    stopped_after(shelf, node)
    with pytest.raises(ProcessDeath):
        await delivered(shelf, question(), gateway)
    shelf.after = lambda what: None
    shelf.ingest("0.md", OWNED.replace("finance team", "ledger team"))
    if node in ("retrieve", "evaluate"):
        gateway.says.pop(0)
    await delivered(shelf, question(), gateway)
    worked = shelf.worked()
    assert worked.text is not None
    assert "ledger team" in worked.text
    assert {citation.version for citation in worked.findings.citations} == {2}
    again = [action for action in shelf.line() if action["kind"] == "search"][-1]
    assert again["reasoning"].startswith("the results have changed since")


async def test_passages_deleted_meanwhile_are_not_cited() -> None:
    shelf = book(OWNED)
    stopped_after(shelf, "validate")
    with pytest.raises(ProcessDeath):
        await delivered(shelf, question())
    shelf.after = lambda what: None
    for chunk_id in [each for each in shelf.kept("chunks") if each.startswith("0.md")]:
        shelf.drop("chunks", chunk_id)
    await delivered(shelf, question())
    worked = shelf.worked()
    assert (worked.outcome, worked.code) == ("stopped", "insufficient_evidence")


@pytest.mark.parametrize("error", [Transient("away"), Conflict("routes", "r", 0, 1)])
async def test_a_step_that_is_refused_for_now_comes_out_as_it_was(error: CounterpointError) -> None:
    shelf = book(OWNED)
    shelf.refuses = lambda commit: error if commit.step.endswith("evaluate") else None
    with pytest.raises(type(error)):
        await delivered(shelf, question())
    shelf.refuses = lambda commit: None
    await delivered(shelf, question())
    assert shelf.worked().outcome == "answered"


@pytest.mark.parametrize("error", [Transient("away"), Denied("budget"), Permanent("no_model"), Permanent("refused")])
async def test_without_the_model_the_answer_is_made_of_quotes(error: CounterpointError) -> None:
    shelf = book(OWNED)
    await delivered(shelf, question(), Model(error))
    worked = shelf.worked()
    assert worked.outcome == "answered"
    assert "finance_daily is owned by the finance team." in (worked.text or "")
    assert any("consists of quotes" in caveat for caveat in worked.findings.caveats)
    assert "the model was not available" in shelf.line()[0]["reasoning"]


async def test_a_model_that_writes_nothing_has_not_declined() -> None:
    shelf = book(OWNED)
    await delivered(shelf, question(), Model(ROUTED, " \n"))
    worked = shelf.worked()
    assert worked.outcome == "answered"
    assert "the model wrote nothing, so the answer consists of quotes" in worked.findings.caveats


async def test_a_draft_that_memory_refuses_is_never_handed_out() -> None:
    """A model's words that hold a secret, as the write filter sees it: plain retrieval takes their place."""
    shelf = book(OWNED)
    secret = Permanent("sensitive", (Problem(field="draft", problem="a key"),))

    def refuses(commit: Commit) -> CounterpointError | None:
        return secret if "17 people" in str([write.body for write in commit.writes]) else None

    shelf.refuses = refuses
    await delivered(shelf, question(), Model(ROUTED, WRONG))
    worked = shelf.worked()
    assert worked.outcome == "answered"
    assert "17 people" not in (worked.text or "")
    assert "finance_daily is owned by the finance team." in (worked.text or "")
    assert "generate failed: draft a key" in worked.findings.caveats


async def in_one_delivery(shelf: Book, message: TaskDelegated, gateway: Gateway = OFFLINE) -> None:
    """One delivery as the service takes it."""
    memory = shelf.delivered("message", "t")
    commit = await handle_delegated(message, memory, gateway, KNOWN, Deadlines(60.0))
    if not memory.finished:
        await memory.step(commit)


@pytest.mark.parametrize("name", ["answered by quotes", "not found"])
async def test_without_a_gateway_a_run_is_one_commit(name: str) -> None:
    _, text, outcome = COURSES[name]
    stepped, shelf = book(OWNED), book(OWNED)
    await delivered(stepped, question(text))
    await in_one_delivery(shelf, question(text))
    assert shelf.steps == ["done"]
    assert shelf.worked() == stepped.worked()
    assert shelf.worked().outcome == outcome
    assert [each.decision_id for each in shelf.decisions()] == [each.decision_id for each in stepped.decisions()]
    assert [action["action_id"] for action in shelf.line()] == [action["action_id"] for action in stepped.line()]
    assert shelf.delivered("message", "t").id("run") not in shelf.kept("checkpoints")


async def test_with_a_model_each_step_is_kept() -> None:
    shelf = book(OWNED)
    await in_one_delivery(shelf, question(), Model(ROUTED, RIGHT))
    assert [step.split("-")[-1] for step in shelf.steps] == [
        "route", "retrieve", "evaluate", "generate", "validate", "done",
    ]  # fmt: skip


async def test_a_run_that_is_refused_as_a_whole_is_taken_step_by_step() -> None:
    shelf = book(OWNED)

    secret = Permanent("sensitive", (Problem(field="draft", problem="a password"),))
    shelf.refuses = lambda commit: secret if "drafted" in str(commit.messages) else None
    await in_one_delivery(shelf, question())
    worked = shelf.worked()
    assert worked.outcome == "answered"
    assert "generate failed: draft a password" in worked.findings.caveats
    assert "finance_daily is owned by the finance team." in (worked.text or "")
    assert [step.split("-")[-1] for step in shelf.steps] == ["route", "retrieve", "evaluate", "generate", "done"]


async def test_a_run_begun_step_by_step_goes_on_so() -> None:
    shelf = book(OWNED)
    stopped_after(shelf, "evaluate")
    with pytest.raises(ProcessDeath):
        await delivered(shelf, question())
    shelf.after = lambda what: None
    await in_one_delivery(shelf, question())
    assert shelf.worked().outcome == "answered"
    assert len({each.decision_id for each in shelf.decisions()}) == len(shelf.decisions()) == len(shelf.line())


async def test_a_second_draft_that_is_refused_does_not_bring_back_the_first() -> None:
    shelf = book(OWNED)
    shelf.refuses = lambda commit: (
        Permanent("sensitive") if commit.step == "05-generate" and "drafted" in str(commit.messages) else None
    )
    await delivered(shelf, question(), Model(ROUTED, WRONG, RIGHT))
    worked = shelf.worked()
    assert "17 people" not in (worked.text or "")
    assert "the passages are shown as they were found" in worked.findings.caveats[0]


async def test_a_route_that_is_refused_leaves_it_to_the_rules() -> None:
    shelf = book(OWNED)
    shelf.refuses = lambda commit: (
        Permanent("sensitive")
        if commit.step == "00-route" and any(w.store == "routes" for w in commit.writes)
        else None
    )
    await delivered(shelf, question(), Model(ROUTED, RIGHT))
    assert shelf.worked().outcome == "answered"
    assert any("route failed" in caveat for caveat in shelf.worked().findings.caveats)


async def test_question_alone_proves_nothing_about_the_failure_that_it_is_asked_about() -> None:
    shelf = book("After an upgrade reading still works, and so does everything that works by reading.")
    await delivered(shelf, question(BURNED))
    assert "look again: What still works?" in [each.decision for each in shelf.decisions()]
    assert shelf.worked().outcome == "stopped"


async def test_a_refused_step_is_an_error_and_not_an_empty_result() -> None:
    shelf = book(OWNED)
    shelf.refuses = lambda commit: Permanent("invalid") if commit.step == "00-route" else None
    with pytest.raises(Permanent):
        await delivered(shelf, question())


@pytest.mark.parametrize(
    "text", ["Half a \ud83d character and a \0 [1].", "finance_daily \0is owned by the finance team [1]."]
)
async def test_characters_that_no_record_may_hold_do_not_stop_it(text: str) -> None:
    shelf = book(OWNED)
    await delivered(shelf, question(), Model('{"mode": "hybrid", "reason": "\\u0000 \\ud83d"}', text))
    assert shelf.worked().outcome == "answered"
    assert "\0" not in str(shelf.sent)


async def test_the_longest_question_fits_a_record() -> None:
    long = ("Wem gehört «finance_daily» und когда läuft es? " * 400)[:15_999] + "?"
    shelf = book(OWNED)
    await delivered(shelf, question(long))
    assert shelf.worked().searched_for
    for commit in shelf.commits:
        for write in commit.writes:
            assert len(str(write.body).encode()) < 200_000


def test_citations_are_shapes_that_a_checkpoint_keeps() -> None:
    """Citations of a draft survive a checkpoint: offsets and quotes are the same to the byte."""
    said = Citation(store="chunks", id="c", version=3, source_path="ä.md", start=1, end=4, quote="\u2028é\n")
    assert Citation.model_validate(said.model_dump(mode="json")) == said
