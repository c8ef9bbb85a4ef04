"""The steps of a question at a memory in RAM that keeps each once: killed anywhere, changed meanwhile, without time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from agents.developer_memory import Shelf
from agents.steps import handle_in_steps
from prometheus_client import REGISTRY

from counterpoint.client import Gateway
from counterpoint.client.gateway import Generated, Usage, WebResult, WebResults
from counterpoint.developer.evidence.calibration import Calibration, load_calibration
from counterpoint.developer.excerpts.relevance import Curve
from counterpoint.developer.handlers import OFFLINE, handle_delegated
from counterpoint.developer.language.words import content_words
from counterpoint.developer.rag.graph import MOST_STEPS
from counterpoint.developer.rag.route import words_key
from counterpoint.developer.settings import Deadlines
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Conflict, CounterpointError, Denied, Permanent, Problem, Transient
from counterpoint.proto.findings import Citation
from counterpoint.proto.memory import Commit, CommitReply, CommitRequest, Refusal
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

QUESTION = "Who owns finance_daily?"
OWNED = "finance_daily is owned by the finance team. It runs at 06:30."
OTHERS = ("The coffee machine is descaled on Mondays.", "Plants are watered on Fridays by the intern.")
EASY = Curve(intercept=-2.0, cosine=2.0, overlap=4.0, threshold=0.5, fitted_on="a test")
KNOWN = Calibration(topic=load_calibration().topic, answer=EASY)
WORKED = TaskWorked.TYPE


async def _alike(query: str, texts: Sequence[str]) -> list[float]:
    """The share of a query's words that a text holds; a little for every text."""
    asked = content_words(query)
    return [0.01 + len(asked & content_words(text)) / (len(asked) + 1) for text in texts]


class Killed(BaseException):
    """The process ends here."""


class Book(Shelf):
    """A shelf that tells `before` and `after` of each request, which may end it all; `refuses` a commit."""

    def __init__(self) -> None:
        super().__init__(_alike)
        self.before: Callable[[str], Any] = lambda what: None
        self.after: Callable[[str], Any] = lambda what: None
        self.refuses: Callable[[Commit], CounterpointError | None] = lambda commit: None

    async def transport(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        await asyncio.sleep(0)
        what = "query" if subject.endswith(".query") else "commit"
        self.before(what)
        answer = await super().transport(subject, body, timeout_s)
        self.after(what)
        return answer

    async def _commit(self, request: CommitRequest) -> CommitReply:
        refused = self.refuses(request.commit)
        if refused is not None and (request.origin.message_id, request.commit.step) not in self.applied:
            raise refused
        return await super()._commit(request)

    @property
    def steps(self) -> list[str]:
        """The steps that were applied, in order."""
        return [step for _, step in self.applied]

    @property
    def sent(self) -> list[dict[str, Any]]:
        """What went out, in order."""
        return [{"type": message.type, **message.data} for commit in self.commits for message in commit.messages]

    def decisions(self) -> list[DecisionMade]:
        """Those that were made, in order."""
        return [DecisionMade.model_validate(said) for said in self.sent if said["type"] == DecisionMade.TYPE]

    def worked(self) -> TaskWorked:
        """What it came to, once."""
        (only,) = (said for said in self.sent if said["type"] == WORKED)
        return TaskWorked.model_validate(only)

    def line(self) -> list[dict[str, Any]]:
        """The actions, each after the one before it."""
        actions = list(self.kept("actions").values())
        for before, action in pairwise(actions):
            assert action["after"] == [before["action_id"]]
        assert actions[0]["after"] == ["before"]
        return actions


def _refusal(error: CounterpointError) -> Refusal:
    match error:
        case Permanent():
            return Refusal(kind="permanent", code=error.code, problems=error.problems)
        case Conflict():
            return Refusal(kind="conflict", code="conflict", detail=f"{error.store}/{error.record_id}")
        case _:
            return Refusal(kind="transient", code="transient", detail=str(error))


class Model(Gateway):
    """A gateway whose model says what it is told to, and whose calls are kept by their keys. `asked` went outside."""

    def __init__(self, *says: str | CounterpointError, pages: Sequence[WebResult] | None = None) -> None:
        super().__init__("http://nowhere", model="m", searches_web=pages is not None)
        self.says = list(says)
        self.pages = pages
        self.asked: list[tuple[str, Any]] = []
        self.kept: dict[str, Any] = {}
        self.deadlines: list[float] = []
        self.slow = False
        self.after: Callable[[str], Any] = lambda what: None

    async def generate(  # type: ignore[override]
        self, holder: Any, messages: Sequence[Mapping[str, str]], *, key: str, deadline_s: float, **more: Any
    ) -> Generated:
        self.deadlines.append(deadline_s)
        if self.slow:
            await asyncio.sleep(deadline_s)
            raise Transient(f"the gateway did not answer within {deadline_s} s")
        if key not in self.kept:
            self.asked.append((key, messages))
            said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
            if isinstance(said, CounterpointError):
                raise said
            self.kept[key] = Generated(text=said, finish="stop", usage=Usage(model="m", input_tokens=1))
        self.after("model")
        return self.kept[key]  # type: ignore[no-any-return]

    async def search_web(self, holder: Any, query: str, *, key: str, deadline_s: float, count: int = 5) -> WebResults:
        self.asked.append((key, query))
        return WebResults(results=tuple(self.pages or ()), engine="test")


def book(*texts: str) -> Book:
    made = Book()
    for n, text in enumerate((*texts, *OTHERS)):
        made.ingest(f"{n}.md", text)
    return made


def question(text: str = QUESTION, **fields: Any) -> TaskDelegated:
    more = {name: fields.pop(name) for name in ("purpose",) if name in fields}
    return TaskDelegated(
        task_id="t", project="shop", session_id="s", attempt=1, lane="answer", after=("before",),
        task=SubmitTask(kind="question", description=text, **fields), **more,
    )  # fmt: skip


async def delivered(shelf: Book, message: TaskDelegated, gateway: Gateway = OFFLINE, deadline_s: float = 60.0) -> None:
    """One delivery, as the bus takes it: the handler, then its commit."""
    memory = shelf.delivered("message", "t")
    await memory.step(await handle_in_steps(message, memory, gateway, KNOWN, deadline_s))


BURNED = "The primary of queue seven burned down with both replicas and the backups of three months. What still works?"
ROUTED = '{"mode": "hybrid", "reason": "it is about a job of the team"}'
RIGHT, WRONG = "finance_daily is owned by the finance team [1].", "finance_daily is owned by 17 people [1]."
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
                raise Killed

        shelf.before = shelf.after = passed
        with pytest.raises(Killed):
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
            raise Killed

    shelf.after, runs = after, 0
    while not any(said["type"] == WORKED for said in shelf.sent):
        with pytest.raises(Killed):
            await delivered(shelf, message, gateway)
        runs += 1
        assert runs <= MOST_STEPS + 1
    assert shelf.worked().outcome == "answered"
    assert [key for key, _ in gateway.asked] == ["00-route", "03-generate", "05-generate"]


def stopped_after(shelf: Book, node: str) -> None:
    """Have the shelf end it all when the step of a node is kept."""

    def after(what: str) -> None:
        if what == "commit" and shelf.steps[-1].endswith(node):
            raise Killed

    shelf.after = after


@pytest.mark.parametrize("node", ["retrieve", "evaluate", "generate", "validate"])
async def test_evidence_that_has_changed_meanwhile_is_looked_up_again(node: str) -> None:
    shelf, gateway = book(OWNED), Model(ROUTED, RIGHT, "finance_daily is owned by the ledger team [1].")
    stopped_after(shelf, node)
    with pytest.raises(Killed):
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


async def test_what_is_gone_meanwhile_is_not_cited() -> None:
    shelf = book(OWNED)
    stopped_after(shelf, "validate")
    with pytest.raises(Killed):
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


async def test_what_memory_refuses_to_keep_is_never_handed_out() -> None:
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
async def test_where_nobody_outside_can_be_asked_the_run_is_one_commit(name: str) -> None:
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
    with pytest.raises(Killed):
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


async def test_could_not_look_is_not_nothing_found() -> None:
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


class TestTime:
    async def test_a_slow_model_leaves_time_to_end(self) -> None:
        shelf, gateway = book(OWNED), Model(RIGHT)
        gateway.slow = True
        await delivered(book(OWNED), question())
        await delivered(shelf, question(), gateway, deadline_s=1.0)
        assert shelf.worked().outcome == "answered"
        assert "finance_daily is owned by the finance team." in (shelf.worked().text or "")
        route_s, generate_s = gateway.deadlines
        assert route_s <= 0.2
        assert generate_s <= 0.6

    @pytest.mark.parametrize("left_s", [-3600, -1, 0])
    async def test_when_the_time_of_the_task_is_over_nobody_outside_is_asked(self, left_s: float) -> None:
        shelf, gateway = book(OWNED), Model(RIGHT, pages=())
        news = "What is the latest version of finance_daily?"
        await delivered(shelf, question(news, deadline=utc_now() + timedelta(seconds=left_s)), gateway)
        assert gateway.asked == []
        assert shelf.worked().outcome in ("answered", "stopped")

    async def test_without_time_no_other_words_are_tried_and_that_is_said(self) -> None:
        shelf = book(OWNED)
        chatty = "Hello! Could you tell me which colour has the parental leave of the office?"
        await delivered(shelf, question(chatty, deadline=utc_now() - timedelta(seconds=1)))
        assert [action["kind"] for action in shelf.line()] == ["route", "search", "assess", "escalate"]
        assert "the time limit was reached before the question could be rewritten" in shelf.worked().findings.caveats

    @pytest.mark.parametrize(("took_s", "left_s"), [(8.0, 12.0), (25.0, None)])
    async def test_a_delivery_has_the_time_that_those_before_it_have_left(
        self, monkeypatch: pytest.MonkeyPatch, took_s: float, left_s: float | None
    ) -> None:
        now = 1000.0
        monkeypatch.setattr("counterpoint.developer.rag.step_runner.time", SimpleNamespace(monotonic=lambda: now))
        shelf, gateway = book(OWNED), Model(ROUTED, RIGHT)

        def asked(what: str) -> None:
            nonlocal now
            now += took_s

        def killed(what: str) -> None:
            if what == "commit":
                raise Killed

        gateway.after, shelf.after = asked, killed
        with pytest.raises(Killed):
            await delivered(shelf, question(), gateway, deadline_s=20.0)
        shelf.after, now = lambda what: None, now + 3600
        await delivered(shelf, question(), gateway, deadline_s=20.0)
        assert gateway.deadlines[1:] == ([] if left_s is None else [pytest.approx(0.6 * left_s)])
        assert shelf.worked().outcome == "answered"

    async def test_the_deadline_of_the_task_counts_where_it_is_nearer(self) -> None:
        shelf, gateway = book(OWNED), Model(RIGHT)
        await delivered(shelf, question(deadline=utc_now() + timedelta(seconds=5)), gateway, deadline_s=600)
        assert max(gateway.deadlines) <= 3.0


class TestTrace:
    async def test_each_node_decides_in_order_and_is_on_the_line(self) -> None:
        shelf = book(OWNED)
        await delivered(shelf, question(), Model(ROUTED, WRONG, RIGHT))
        kinds = ["route", "search", "assess", "generate", "validate", "generate", "validate", "answer", "review"]
        said = [
            "route",
            "retrieve",
            "retrieval_grade",
            "generate",
            "validate",
            "generate",
            "validate",
            "answer",
            "review",
        ]
        assert [action["kind"] for action in shelf.line()] == kinds
        decisions = shelf.decisions()
        assert [each.decision_type for each in decisions] == said
        assert [each.parent_decision_id for each in decisions] == [None, *(each.decision_id for each in decisions[:-1])]
        assert [action["decision_id"] for action in shelf.line()] == [each.decision_id for each in decisions]
        assert decisions[0].reasoning == "it is about a job of the team"
        assert "0 of 1 sentences are supported" in decisions[4].reasoning
        assert "contains 17" in decisions[4].reasoning
        assert [each.model for each in decisions].count("m") == 2

    async def test_what_happens_is_counted(self) -> None:
        def counted() -> dict[str, float]:
            names = {
                "routes": ("counterpoint_rag_routes_total", {"mode": "hybrid", "by": "model"}),
                "by rules": ("counterpoint_rag_routes_total", {"mode": "hybrid", "by": "rules"}),
                "corrections": ("counterpoint_rag_corrections_total", {}),
                "supported": ("counterpoint_rag_validations_total", {"verdict": "supported"}),
                "unsupported": ("counterpoint_rag_validations_total", {"verdict": "unsupported"}),
                "answered": ("counterpoint_rag_endings_total", {"ending": "answered"}),
                "fallback": ("counterpoint_rag_endings_total", {"ending": "fallback"}),
                "stopped": ("counterpoint_rag_endings_total", {"ending": "insufficient_evidence"}),
            }
            return {name: REGISTRY.get_sample_value(*of) or 0.0 for name, of in names.items()}

        before = counted()
        await delivered(book(OWNED), question(), Model(ROUTED, WRONG, RIGHT))
        await delivered(book(OWNED), question(), Model(ROUTED, WRONG, WRONG))
        await delivered(book(OWNED), question("Hello, please tell me which colour has the parental leave?"))
        changed = {name: value - before[name] for name, value in counted().items()}
        assert changed.pop("corrections") >= 1
        assert changed == {
            "routes": 2, "by rules": 1, "supported": 2, "unsupported": 2, "answered": 2, "fallback": 0, "stopped": 1,
        }  # fmt: skip

    async def test_a_model_whose_drafts_are_unsupported_leaves_the_answer_of_the_rules(self) -> None:
        by_rules, shelf = book(OWNED), book(OWNED)
        await delivered(by_rules, question())
        await delivered(shelf, question(), Model(ROUTED, WRONG, WRONG))
        expected, worked = by_rules.worked(), shelf.worked()
        assert (worked.outcome, worked.text, worked.confidence) == ("answered", expected.text, expected.confidence)
        assert worked.findings.citations == expected.findings.citations
        (caveat,) = worked.findings.caveats
        assert caveat == (
            "the answer consists of quotes, because the model's was not supported: "
            "it contains 17, which the cited text does not"
        )
        validated = [each for each in shelf.decisions() if each.decision_type == "validate"]
        assert [each.decision for each in validated] == ["again", "fall back to quotes"]

    async def test_a_model_that_finds_no_answer_leaves_that_of_the_rules_with_less_confidence(self) -> None:
        by_rules, shelf = book(OWNED), book(OWNED)
        await delivered(by_rules, question())
        await delivered(shelf, question(), Model(ROUTED, "NO ANSWER"))
        expected, worked = by_rules.worked(), shelf.worked()
        assert (worked.outcome, worked.text) == ("answered", expected.text)
        assert expected.confidence is not None
        assert worked.confidence is not None
        assert (expected.confidence.band, worked.confidence.band) == ("high", "medium")
        assert worked.findings.caveats == (
            "the model found no answer in these passages, so the answer consists of quotes",
        )

    async def test_a_reassessment_that_still_stops_leaves_no_stop_on_the_line(self) -> None:
        shelf = book(OWNED)
        await delivered(shelf, question("Which colour has the parental leave?", purpose="reassess"))
        assert "escalate" not in [action["kind"] for action in shelf.line()]
        assert shelf.worked().action_id == shelf.line()[-1]["action_id"]

    async def test_candidates_come_with_insufficient_evidence(self) -> None:
        shelf = book(OWNED)
        await delivered(shelf, question("Which plants has the parental leave?"))
        worked = shelf.worked()
        assert worked.code == "insufficient_evidence"
        assert worked.findings.citations
        assert "the citations are candidates, not an answer" in worked.findings.caveats


class TestRoutes:
    async def test_what_the_model_says_is_asked_once_for_the_same_words(self) -> None:
        shelf, gateway = book(OWNED), Model(ROUTED, RIGHT)
        await delivered(shelf, question(), gateway)
        memory = shelf.delivered("another", "t")
        await handle_in_steps(question("finance_daily: who owns?"), memory, gateway, KNOWN)
        assert [key for key, _ in gateway.asked].count("00-route") == 1
        assert "cached for the same words" in shelf.decisions()[-4].reasoning + shelf.decisions()[-5].reasoning

    async def test_another_question_of_the_same_words_may_have_kept_its_route_first(self) -> None:
        shelf, gateway = book(OWNED), Model(ROUTED, RIGHT)
        gateway.after = lambda what: shelf.put("routes", words_key(QUESTION), {"mode": "hybrid", "reason": "theirs"})
        with pytest.raises(Conflict):
            await delivered(shelf, question(), gateway)
        gateway.after = lambda what: None
        await delivered(shelf, question(), gateway)
        assert shelf.line()[0]["reasoning"].startswith("theirs (cached for the same words)")
        assert shelf.worked().outcome == "answered"

    @pytest.mark.parametrize("said", ["no JSON", "[]", '{"mode": "moon", "reason": "r"}', '{"mode": "web"}', "null"])
    async def test_what_cannot_be_used_leaves_it_to_the_rules(self, said: str) -> None:
        shelf = book(OWNED)
        await delivered(shelf, question(), Model(said, RIGHT))
        assert "the reply of the model could not be used" in shelf.line()[0]["reasoning"]
        assert not shelf.kept("routes")
        assert shelf.worked().outcome == "answered"

    async def test_a_model_that_wants_the_web_is_told_that_there_is_none(self) -> None:
        shelf = book(OWNED)
        await delivered(shelf, question(), Model('{"mode": "web", "reason": "news"}', RIGHT))
        assert shelf.line()[0]["result"] == "hybrid"
        assert "web_unavailable" in shelf.line()[0]["reasoning"]

    async def test_pages_of_the_web_are_leads_and_no_evidence(self) -> None:
        page = WebResult(title="finance_daily is owned by nobody", url="https://example.org/x", snippet="s")
        shelf, gateway = book(), Model('{"mode": "web", "reason": "news"}', pages=(page,))
        await delivered(shelf, question("What is the latest version of Airflow?"), gateway)
        worked = shelf.worked()
        assert worked.code == "insufficient_evidence"
        assert any("https://example.org/x" in need.how for need in worked.needs)
        assert "owned by nobody" not in str(worked.findings)

    @pytest.mark.parametrize(
        ("web", "permitted", "searched", "wanted", "why"),
        [
            ("ask", None, 0, "What is the latest version of Airflow?", "needs an approval"),
            ("ask", "another question", 0, "What is the latest version of Airflow?", "needs an approval"),
            ("ask", "What is the latest version of Airflow?", 1, None, None),
            ("refuse", "What is the latest version of Airflow?", 0, None, "refuses searches of the web"),
            ("allow", None, 1, None, None),
        ],
    )
    async def test_the_web_is_searched_only_with_a_permit(
        self, web: str, permitted: str | None, searched: int, wanted: str | None, why: str | None
    ) -> None:
        page = WebResult(title="Airflow 3.3", url="https://example.org/x", snippet="s")
        shelf, gateway = book(), Model('{"mode": "web", "reason": "news"}', pages=(page,))
        message = question("What is the latest version of Airflow?")
        await delivered(shelf, message.model_copy(update={"web": web, "permitted_search": permitted}), gateway)
        worked = shelf.worked()
        assert worked.wanted_search == wanted
        assert sum("https://example.org/x" in need.how for need in worked.needs) == searched
        assert why is None or any(why in each for each in worked.findings.caveats), worked.findings.caveats


def test_citations_are_shapes_that_a_checkpoint_keeps() -> None:
    """What a draft cites survives being kept: offsets and quotes are the same to the byte."""
    said = Citation(store="chunks", id="c", version=3, source_path="ä.md", start=1, end=4, quote="\u2028é\n")
    assert Citation.model_validate(said.model_dump(mode="json")) == said
