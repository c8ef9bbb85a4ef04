"""Replay with another model: its calls, paid by the sandbox, and what they cost and led to."""

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from counterpoint.cli.errors import ApiError
from counterpoint.cli.replay.compare import DecisionText, decisions
from counterpoint.client.replay import LiveReply, LiveRequest, RecordedCall, ReplayedDelivery
from counterpoint.proto.memory import Item, Outgoing, Ref, StepRecord
from counterpoint.proto.messages import Shape, Usd
from counterpoint.proto.replays import ReplayAnswers, TextReply, sandbox_project
from counterpoint.proto.subjects import DEFAULT_PROJECT
from counterpoint.proto.tasks import Budget, TaskWorked

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient


class CallCosts(Shape):
    """The costs of some calls. `unpriced` ones have no known price and are not in `usd`; `kept` ones were made by an
    earlier replay, which paid `kept_usd` for them. `seconds` is how long the calls took, without kept ones."""

    calls: int = 0
    usd: Usd = Decimal(0)
    tokens: int = 0
    unpriced: int = 0
    kept: int = 0
    kept_usd: Usd = Decimal(0)
    seconds: float = 0.0

    @property
    def paid_usd(self) -> Decimal:
        """The cost without that of kept calls, in US dollars."""
        return self.usd - self.kept_usd

    def plus(self, usd: Decimal | None, tokens: int, *, seconds: float, kept: bool = False) -> "CallCosts":
        """Return the costs with those of one more call."""
        return CallCosts(
            calls=self.calls + 1,
            usd=self.usd + (usd or 0),
            tokens=self.tokens + tokens,
            unpriced=self.unpriced + (usd is None),
            kept=self.kept + kept,
            kept_usd=self.kept_usd + ((usd or 0) if kept else 0),
            seconds=round(self.seconds + (0 if kept else seconds), 3),
        )


class ResultText(Shape):
    """A result of the work on a task."""

    outcome: str
    text: str | None = None
    code: str | None = None
    confidence: float | None = None


class OtherModel(Shape):
    """A delivery that called a model, with the recorded calls and with those of another model.

    `queries` is the number of queries that the recorded delivery did not make, `read` the items that answered them,
    which are in its context beside those of the record. `stopped`: why it did not run to its
    end.
    """

    service: str
    leaf: int
    recorded_models: tuple[str, ...]
    recorded_cost: CallCosts
    replayed_cost: CallCosts
    recorded_decisions: tuple[DecisionText, ...] = ()
    replayed_decisions: tuple[DecisionText, ...] = ()
    recorded_result: ResultText | None = None
    replayed_result: ResultText | None = None
    queries: int = 0
    read: tuple[Ref, ...] = ()
    stopped: str | None = None


class ModelReport(Shape):
    """A replay by another model: the deliveries that called one, and what their calls cost in all."""

    model: str
    sandbox: str
    budget: Budget
    recorded_cost: CallCosts
    replayed_cost: CallCosts
    deliveries: tuple[OtherModel, ...]


class ModelReplay:
    """A replay of one task by another model. `run` names a repetition, whose calls are made anew, `regression` a run of
    many tasks, which have one budget."""

    def __init__(
        self,
        api: "ApiClient",
        task_id: str,
        project: str | None,
        model: str,
        budget: Budget,
        run: str = "",
        regression: str | None = None,
    ) -> None:
        self._api = api
        self._path = f"/v1/tasks/{task_id}/replay"
        self._project = project
        self._model = model
        self._budget = budget
        self._run = run
        self._regression = regression
        self.refusal: str | None = None
        self._commit_id = ""
        self._left_out: Callable[[Item], bool] = lambda item: False
        self._read: dict[Ref, None] = {}
        self._queries = 0
        self._cost = CallCosts()
        self._sandbox = sandbox_project(project or DEFAULT_PROJECT)
        self._deliveries: list[OtherModel] = []

    @property
    def stopped(self) -> bool:
        """Whether a call could not be made, so that the model has not made all decisions."""
        return any(each.stopped for each in self._deliveries)

    @property
    def report(self) -> ModelReport:
        """The deliveries so far."""
        return ModelReport(
            model=self._model,
            sandbox=self._sandbox,
            budget=self._budget,
            recorded_cost=sum_of_costs(each.recorded_cost for each in self._deliveries),
            replayed_cost=sum_of_costs(each.replayed_cost for each in self._deliveries),
            deliveries=tuple(self._deliveries),
        )

    def begin(self, commit_id: str, left_out: Callable[[Item], bool]) -> None:
        """Begin a delivery, which a commit ended; the items that are `left_out` are in no answer."""
        self._commit_id, self._left_out = commit_id, left_out
        self._read, self._queries, self._cost = {}, 0, CallCosts()

    def answer(self, request: LiveRequest) -> LiveReply:
        """Return the completion of the model or the answers of memory, or the error."""
        try:
            return self._answers(request) if request.call is None else self._called(request)
        except ApiError as refused:
            self.refusal = str(refused.body.get("code") or "refused")
            what = f"{self._model} was not called" if request.call else "memory has no answer to what it asks for"
            return LiveReply(error=_problem(refused, what))

    def _called(self, request: LiveRequest) -> LiveReply:
        assert request.call is not None
        body = request.call.model_dump(mode="json") | {
            "commit_id": self._commit_id,
            "model": self._model,
            "budget": self._budget.model_dump(mode="json", exclude_none=True),
            "run": self._run,
            "regression": self._regression,
            "read": [each.model_dump() for each in self._read],
        }
        begun = time.monotonic()
        reply = TextReply.model_validate(self._api.post(f"{self._path}/calls", body, project=self._project))
        tokens = reply.input_tokens + reply.output_tokens
        seconds = time.monotonic() - begun
        self._cost = self._cost.plus(reply.cost_usd, tokens, seconds=seconds, kept=reply.replayed)
        return LiveReply(text=reply.text, finish=reply.finish)

    def _answers(self, request: LiveRequest) -> LiveReply:
        body = {"commit_id": self._commit_id, "queries": [query.model_dump(mode="json") for query in request.queries]}
        found = ReplayAnswers.model_validate(self._api.post(f"{self._path}/queries", body, project=self._project)).found
        self._queries += len(request.queries)
        kept = [tuple(item for item in answer.items if not self._left_out(item)) for answer in found]
        self._read |= {
            Ref(store=item.store, id=item.id, version=item.version): None for items in kept for item in items
        }
        answers = (answer.model_copy(update={"items": items}) for answer, items in zip(found, kept, strict=True))
        return LiveReply(found=tuple(answers))

    def end(
        self,
        leaf: int,
        steps: Iterable[StepRecord],
        calls: Mapping[str, RecordedCall],
        ledger: CallCosts,
        result: ReplayedDelivery,
    ) -> None:
        """Note what a delivery came to, beside its recorded steps."""
        recorded = [message for step in steps for message in step.messages]
        replayed = [message for commit in result.commits for message in commit.messages]
        service = next((step.service for step in steps), "")
        self._deliveries.append(
            OtherModel(
                service=service,
                leaf=leaf,
                recorded_models=tuple(dict.fromkeys(call.model for call in calls.values() if call.kind == "generate")),
                recorded_cost=ledger,
                replayed_cost=self._cost,
                recorded_decisions=decisions(recorded),
                replayed_decisions=decisions(replayed),
                recorded_result=_result(recorded),
                replayed_result=_result(replayed),
                queries=self._queries,
                read=tuple(self._read),
                stopped=result.missing,
            )
        )


def sum_of_costs(costs: Iterable[CallCosts]) -> CallCosts:
    """Return the costs of all."""
    parts = list(costs)
    return CallCosts(
        calls=sum(each.calls for each in parts),
        usd=sum((each.usd for each in parts), Decimal(0)),
        tokens=sum(each.tokens for each in parts),
        unpriced=sum(each.unpriced for each in parts),
        kept=sum(each.kept for each in parts),
        kept_usd=sum((each.kept_usd for each in parts), Decimal(0)),
        seconds=round(sum(each.seconds for each in parts), 3),
    )


def ledger_costs(bodies: Iterable[Mapping[str, Any]]) -> CallCosts:
    """Return what the calls of the ledger cost, by their final records."""
    costs = CallCosts()
    for body in bodies:
        if body.get("kind") != "generate" or body.get("state") not in ("settled", "unknown"):
            continue
        usd = body.get("cost_usd", "unknown")
        tokens = int(body.get("input_tokens") or 0) + int(body.get("output_tokens") or 0)
        costs = costs.plus(None if usd == "unknown" else Decimal(usd), tokens, seconds=_seconds(body))
    return costs


def _seconds(body: Mapping[str, Any]) -> float:
    """Return how long a call of the ledger took, from its reservation to its settlement."""
    begun, ended = body.get("reserved_at"), body.get("settled_at")
    if not begun or not ended:
        return 0.0
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()


def _result(messages: Iterable[Outgoing]) -> ResultText | None:
    """Return the result among the messages of a delivery, if it has one."""
    for message in messages:
        if message.type == TaskWorked.TYPE:
            worked = TaskWorked.model_validate(message.data)
            confidence = worked.confidence.score if worked.confidence else None
            return ResultText(outcome=worked.outcome, text=worked.text, code=worked.code, confidence=confidence)
    return None


def _problem(error: ApiError, what: str) -> str:
    """Return an error in words."""
    body = error.body
    detail = body.get("detail") or "; ".join(f"{each['field']} {each['problem']}" for each in body.get("errors", ()))
    match body.get("code"):
        case "budget":
            return f"the budget of the replay or a limit of its sandbox does not cover the next call: {detail}"
        case "unavailable":
            return f"{what}: the provider, the gateway or memory is busy or not reachable"
        case code:
            return f"{what}: {code}: {detail}"
