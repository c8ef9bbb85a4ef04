"""Steps of a run over a question: their reads, their gateway calls and their commits."""

import json
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pydantic import ValidationError

from counterpoint.client import Gateway, Memory, act, decide, put, record, send
from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.gather import Evidence, evidence_of, search
from counterpoint.developer.evidence.owners import RECORDED_OWNER, look_up_owners
from counterpoint.developer.evidence.search_query import SearchQuery
from counterpoint.developer.excerpts.answers import grade_answer
from counterpoint.developer.excerpts.relevance import Grade
from counterpoint.developer.language.storable import storable
from counterpoint.developer.policies.commits import AGENT, join_commits
from counterpoint.developer.policies.confidence import band, below_high
from counterpoint.developer.policies.sources import cited_sources
from counterpoint.developer.rag import route as routing
from counterpoint.developer.rag import run as transitions
from counterpoint.developer.rag import telemetry
from counterpoint.developer.rag.generate import (
    draft_by_rules,
    draft_of_model,
    draft_of_passages,
    prompt,
    supported_part,
)
from counterpoint.developer.rag.rewrite import rewrite, text_to_grade
from counterpoint.developer.rag.run import PASSAGES, QUOTES, Draft, Node, PassageVersion, Route, Run, WebPage
from counterpoint.developer.rag.validate import verdicts_of
from counterpoint.proto.decisions import Confidence, Source
from counterpoint.proto.errors import Denied, Permanent, Transient
from counterpoint.proto.line import ActionKind
from counterpoint.proto.memory import Commit, Get, Write
from counterpoint.proto.tasks import TaskDelegated
from counterpoint.proto.words import quantity

_KINDS: dict[Node, ActionKind] = {
    "route": "route", "retrieve": "search", "evaluate": "assess", "generate": "generate", "validate": "validate",
}  # fmt: skip
_DECISIONS: dict[Node, str] = {"evaluate": "retrieval_grade"}
_SHARES = {"route": 0.2, "web": 0.3, "generate": 0.6}
"""Maximum shares of the remaining time of one call."""
_ROUTE_TASK = """Where is this question best looked up? Answer with one JSON object {"mode": ..., "reason": ...}.
mode is "hybrid" (documents and conversations of this team, by words and meaning), "vector" (the same, by meaning alone,
for questions in unusual words) or "web" (it is about the world outside and changes by the day)."""


@dataclass(frozen=True)
class _StepResult:
    """The run after a step, the step's decision in words, and further `writes` of its commit."""

    run: Run
    decision: str
    reasoning: str
    confidence: Confidence | None = None
    model: str | None = None
    writes: tuple[Write, ...] = ()


class StepRunner:
    """Runs the steps of one delivery.

    `deadline_s` limits the time of all steps, including earlier deliveries, unless the task's deadline is earlier. With
    `single_commit` the steps are collected in `pending` instead of being committed one by one, unless there is a
    checkpoint.
    """

    def __init__(
        self,
        message: TaskDelegated,
        memory: Memory,
        gateway: Gateway,
        calibration: Calibration,
        deadline_s: float,
        *,
        single_commit: bool = False,
    ) -> None:
        self._message = message
        self._memory = memory
        self._gateway = gateway
        self._calibration = calibration
        self._deadline_s = deadline_s
        self._began = time.monotonic()
        self._spent_s, self._until = 0.0, 0.0
        self._evidence: Evidence | None = None
        self._summary = ""
        self.single_commit = single_commit
        self.pending = Commit()

    @property
    def evidence(self) -> Evidence:
        """The evidence of the last search."""
        assert self._evidence is not None, "a run searches before it ends"
        return self._evidence

    async def resume(self) -> Run:
        """Return the run of this message from its checkpoint, or a new one. If the evidence has changed, it searches
        again.

        The evidence is read again, since a commit may only cite what its own delivery has read. External replies are in
        the checkpoint.
        """
        checkpoint, session = await self._memory.query(
            Get(store="checkpoints", id=self._checkpoint), Get(store="sessions", id=self._message.session_id)
        )
        self._summary = session.items[0].body.get("summary", "") if session.items else ""
        item = checkpoint.items[0] if checkpoint.items else None
        self.single_commit = self.single_commit and item is None
        run = Run(question=self._message.task.description) if item is None else record(item, Run)
        self._spent_s, self._until = run.spent_s, self._began + self._left_s(run)
        if item is None or run.next == "retrieve":
            return run
        return run if await self._search(run) == run.found else transitions.search_again(run)

    def last_ids(self, run: Run) -> tuple[str, str]:
        """Return the ids of the action and the decision of the run's last step."""
        assert run.last is not None, "no step has been run"
        step = _key(run.steps - 1, run.last)
        kind, decision_type = _KINDS[run.last], _DECISIONS.get(run.last, run.last)
        return self._memory.id("action", AGENT, kind, step), self._memory.id("decision", AGENT, decision_type, step)

    async def run_step(self, node: Node, run: Run) -> Run:
        """Run one node, commit the step under its number, and return the run after it. A step that fails, or whose
        commit memory refuses, is committed as a failed step.

        Raises `Transient`, `Denied` or `Conflict`; and `Permanent` if no search was possible, which differs from an
        empty result.
        """
        try:
            result = self._complete(await self._run_node(node, run))
            await self._commit_step(node, run, result)
        except Permanent as error:
            if node != "route" and self._evidence is None:
                raise
            why = "; ".join(f"{problem.field} {problem.problem}" for problem in error.problems) or error.code
            result = self._complete(_StepResult(transitions.after_failure(run, node, why), "failed", why))
            await self._commit_step(node, run, result)
        telemetry.observe(node, run, result.run)
        return result.run

    def _left_s(self, run: Run) -> float:
        left_s, deadline = self._deadline_s - run.spent_s, self._message.task.deadline
        return left_s if deadline is None else min(left_s, (deadline - datetime.now(UTC)).total_seconds())

    def _complete(self, result: _StepResult) -> _StepResult:
        """Return the result with the time spent so far, and after a fallback with the passages as the draft."""
        update: dict[str, object] = {"spent_s": round(self._spent_s + time.monotonic() - self._began, 3)}
        if result.run.ending == "fallback":
            update["draft"] = draft_of_passages(self.evidence.answers)
        return replace(result, run=result.run.model_copy(update=update))

    async def _run_node(self, node: Node, run: Run) -> _StepResult:
        match node:
            case "route":
                return await self._route(run)
            case "retrieve":
                return await self._retrieve(run)
            case "evaluate":
                return self._evaluate(run)
            case "generate":
                return await self._generate(run)
            case "validate":
                return self._validate(run)

    async def _route(self, run: Run) -> _StepResult:
        task = self._message.task
        query = routing.search_query_of(
            run.question, routing.earlier_questions(self._summary, task.title or task.description)
        )
        route, writes = routing.route(query.text), tuple[Write, ...]()
        if self._gateway.model is not None and route.mode != "vector" and not self._is_late:
            route, writes = await self._route_of_model(run, query.text, route)
        route = routing.available_route(route, self._gateway.searches_web)
        reason = f"{route.reason}; {query.why}" if query.why else route.reason
        return _StepResult(transitions.after_route(run, route, query), route.mode, reason, writes=writes)

    async def _route_of_model(self, run: Run, text: str, rules: Route) -> tuple[Route, tuple[Write, ...]]:
        """Return the route by the model, cached for questions with the same words, or by `rules` if its reply is
        unusable."""
        key = routing.words_key(text)
        item = await self._memory.get("routes", key)
        if item is not None:
            route = record(item, Route)
            return route.model_copy(update={"reason": f"{route.reason} (cached for the same words)"}), ()
        messages = [{"role": "system", "content": _ROUTE_TASK}, {"role": "user", "content": text}]
        try:
            reply = await self._gateway.generate(
                self._memory, messages, key=_key(run.steps, "route"), deadline_s=self._time_s("route"), max_tokens=100,
                as_json=True,
            )  # fmt: skip
            answer = json.loads(reply.text)
            route = Route(mode=answer["mode"], reason=storable(str(answer["reason"])[:500]), by=reply.usage.model)
        except (Permanent, Denied, Transient) as error:
            return rules.model_copy(update={"reason": f"{rules.reason} (the model was not available: {error})"}), ()
        except (ValueError, KeyError, TypeError, ValidationError):
            return rules.model_copy(update={"reason": f"{rules.reason} (the reply of the model could not be used)"}), ()
        return route, (put("routes", key, route),)

    async def _retrieve(self, run: Run) -> _StepResult:
        query = run.asked or SearchQuery(text=run.question)
        found = await self._search(run)
        if run.route is not None and run.route.mode == "web" and not run.leads and not self._is_late:
            run = routing.without_permit(self._message, run) or await self._leads(run)
        texts = " | ".join((query.text, *query.also))
        reason = f"{query.why}: {texts}" if query.why else f"searched for: {texts}"
        counts = f"{quantity(len(found), 'passage')}, {quantity(len(self.evidence.attempts), 'earlier attempt')}"
        return _StepResult(transitions.after_retrieve(run, found), counts, reason)

    async def _leads(self, run: Run) -> Run:
        """Return the run with web pages as leads. They are untrusted and do not count as evidence."""
        try:
            found = await self._gateway.search_web(
                self._memory, run.meant[: routing.WEB_CHARS], key=_key(run.steps, "web"), deadline_s=self._time_s("web")
            )
        except (Permanent, Denied, Transient) as error:
            return run.with_notes(f"web_unavailable: {error}")
        leads = tuple(WebPage(title=storable(each.title)[:200], url=storable(each.url)[:500]) for each in found.results)
        return run.model_copy(update={"leads": leads})

    def _evaluate(self, run: Run) -> _StepResult:
        query = run.asked or SearchQuery(text=run.question)
        grade = self._grade_documents(run) if not self.evidence.owners else RECORDED_OWNER
        grade = grade.model_copy(update={"probability": round(grade.probability, 4)})
        rewritten = rewrite(run.meant, query, self.evidence.answers, run.rewrites)
        after = transitions.after_evaluate(run, grade, rewritten, late := self._is_late)
        if after.next is None and late and rewritten is not None and run.rewrites < transitions.MAX_REWRITES:
            after = after.with_notes("the time limit was reached before the question could be rewritten")
        decisions = {"generate": "go on", "retrieve": f"look again: {rewritten.text if rewritten else ''}"}
        confidence = Confidence(score=grade.probability, band=band(grade.probability) if grade.sufficient else "low")
        best = (*self.evidence.owners, *self.evidence.answers)[:1]
        if not all(hit.trusted for hit in best):
            confidence = below_high(confidence)
        return _StepResult(after, decisions.get(after.next or "", "stop"), grade.reason, confidence)

    def _grade_documents(self, run: Run) -> Grade:
        found, beside = self.evidence.answers, self.evidence.neighbours
        return grade_answer(text_to_grade(run), found, self._calibration.answer, beside, rewritten=run.rewrites > 0)

    async def _generate(self, run: Run) -> _StepResult:
        draft, notes = await self._draft(run)
        after = transitions.after_generate(run.with_notes(*notes), draft)
        sentences, citations = quantity(len(draft.sentences), "sentence"), quantity(len(draft.citations), "citation")
        reason = f"{sentences} with {citations}, by {draft.by}"
        return _StepResult(after, "declined" if draft.declined else "drafted", reason, model=_model(draft))

    async def _draft(self, run: Run) -> tuple[Draft, tuple[str, ...]]:
        """Return a draft by the model, or one of quotes, and notes on why the model's is not used."""
        found, notes, declined = (*self.evidence.owners, *self.evidence.answers), tuple[str, ...](), False
        if self._gateway.model is not None and not self._is_late:
            messages = prompt(run.meant, found, run.draft, run.verdicts)
            try:
                reply = await self._gateway.generate(
                    self._memory, messages, key=_key(run.steps, "generate"), deadline_s=self._time_s("generate")
                )
            except (Permanent, Denied, Transient) as error:
                notes = (f"the model was not available, so the answer consists of quotes: {error}",)
            else:
                draft = draft_of_model(storable(reply.text), found, reply.usage.model)
                if draft.sentences:
                    return draft, ()
                declined = draft.declined
                wrote = "found no answer in these passages" if declined else "wrote nothing"
                notes = (f"the model {wrote}, so the answer consists of quotes",)
        if run.draft is not None and run.draft.by == QUOTES:
            return supported_part(run.draft, run.verdicts), notes
        return self._draft_by_rules(run).model_copy(update={"declined": declined}), notes

    def _draft_by_rules(self, run: Run) -> Draft:
        sufficient, threshold = self._grade_documents(run).sufficient, self._calibration.answer.threshold
        return draft_by_rules(text_to_grade(run), self.evidence, threshold, sufficient=sufficient)

    def _validate(self, run: Run) -> _StepResult:
        hits = (*self.evidence.owners, *self.evidence.answers, *self.evidence.neighbours)
        verdicts = verdicts_of(run.draft or Draft(), hits)
        after = transitions.after_validate(run, verdicts, self._is_late)
        decisions = {"answered": "supported", "fallback": "fall back to plain retrieval"}
        if after.ending == "fallback" and run.draft and _model(run.draft):
            quotes = self._draft_by_rules(run)
            after = transitions.by_rules(after, quotes, verdicts_of(quotes, hits))
            decisions["answered"] = "fall back to quotes"
        wrong = [f"{n}: {verdict.problem}" for n, verdict in enumerate(verdicts, 1) if not verdict.supported]
        supported = f"{len(verdicts) - len(wrong)} of {len(verdicts)} sentences are supported by what they cite"
        return _StepResult(after, decisions.get(after.ending or "", "again"), "; ".join([supported, *wrong]))

    async def _search(self, run: Run) -> tuple[PassageVersion, ...]:
        query = run.asked or SearchQuery(text=run.question)
        meaning_alone = run.route is not None and run.route.mode == "vector"
        results = await search(self._memory, self._message, query, meaning_alone)
        evidence = evidence_of(self._message, results, self._calibration, query)
        self._evidence = replace(evidence, owners=await look_up_owners(self._memory, run.meant or run.question))
        hits = (*self._evidence.owners, *self._evidence.answers)
        return tuple(PassageVersion(id=hit.item.id, version=hit.item.version) for hit in hits)

    async def _commit_step(self, node: Node, before: Run, result: _StepResult) -> None:
        step = _key(before.steps, node)
        action_id, decision_id = self.last_ids(before) if before.last else (None, None)
        sources = self._sources(node, result.run)
        decision = decide(
            self._memory, AGENT, _DECISIONS.get(node, node), result.decision, result.reasoning,
            session_id=self._message.session_id, confidence=result.confidence, sources=sources, step=step,
            parent=decision_id,
        )  # fmt: skip
        if result.model is not None:
            decision = decision.model_copy(update={"model": result.model})
        action = act(
            self._memory, AGENT, _KINDS[node], result.reasoning, result=result.decision,
            after=(action_id,) if action_id else self._message.after,
            sources=sources, decision=decision, step=step,
        )  # fmt: skip
        line = Commit(writes=(put("actions", action.action_id, action),), messages=(send(decision),))
        if self.single_commit:
            self.pending = join_commits(self.pending, line)
            return
        body = result.run.model_dump(mode="json")
        checkpoint = Write(store="checkpoints", id=self._checkpoint, body=body, expect=before.steps)
        writes = (*line.writes, checkpoint, *result.writes)
        await self._memory.step(line.model_copy(update={"step": step, "last": False, "writes": writes}))

    def _sources(self, node: Node, run: Run) -> tuple[Source, ...]:
        """Return the sources of a step's decision: the best passage for a sufficient grade, the citations for a draft
        and its check."""
        if self._evidence is None or node in ("route", "retrieve"):
            return ()
        if node == "evaluate":
            sufficient = run.graded is not None and run.graded.sufficient
            return tuple(hit.as_source for hit in self._evidence.answers[:1]) if sufficient else ()
        return cited_sources(run.draft.citations if run.draft else (), self._evidence)

    @property
    def _checkpoint(self) -> str:
        return self._memory.id("run")

    @property
    def _is_late(self) -> bool:
        return time.monotonic() >= self._until

    def _time_s(self, call: str) -> float:
        return max(0.1, _SHARES[call] * (self._until - time.monotonic()))


def _key(number: int, what: str) -> str:
    return f"{number:02d}-{what}"


def _model(draft: Draft) -> str | None:
    return None if draft.by in (QUOTES, PASSAGES) else draft.by
