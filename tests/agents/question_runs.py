"""Runs of questions at a memory in RAM that may end them, with a model that says what it is told to."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from agents.developer_memory import Shelf
from agents.steps import handle_in_steps

from counterpoint.client import Gateway
from counterpoint.client.gateway import Completion, Usage, WebResult, WebResults
from counterpoint.developer.evidence.calibration import Calibration, load_calibration
from counterpoint.developer.excerpts.relevance import Curve
from counterpoint.developer.handlers import OFFLINE
from counterpoint.developer.language.words import content_words
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Conflict, CounterpointError, Permanent, Transient
from counterpoint.proto.memory import Commit, CommitReply, CommitRequest, Refusal
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
        """The messages of all commits, in order."""
        return [{"type": message.type, **message.data} for commit in self.commits for message in commit.messages]

    def decisions(self) -> list[DecisionMade]:
        """Return the decisions, in order."""
        return [DecisionMade.model_validate(said) for said in self.sent if said["type"] == DecisionMade.TYPE]

    def worked(self) -> TaskWorked:
        """Return the one result of the task."""
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
    ) -> Completion:
        self.deadlines.append(deadline_s)
        if self.slow:
            await asyncio.sleep(deadline_s)
            raise Transient(f"the gateway did not answer within {deadline_s} s")
        if key not in self.kept:
            self.asked.append((key, messages))
            said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
            if isinstance(said, CounterpointError):
                raise said
            self.kept[key] = Completion(text=said, finish="stop", usage=Usage(model="m", input_tokens=1))
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


ROUTED = '{"mode": "hybrid", "reason": "it is about a job of the team"}'
RIGHT, WRONG = "finance_daily is owned by the finance team [1].", "finance_daily is owned by 17 people [1]."
