"""Taking the steps of a run: what each reads, asks for outside, and leaves behind, in a commit of its own where
somebody outside may be asked and else together with the answer."""

import json
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pydantic import ValidationError

from counterpoint.client import Gateway, Memory, act, decide, put, record, send
from counterpoint.developer import answers
from counterpoint.developer.confidence import band, unvouched
from counterpoint.developer.evidence import Evidence, look, weigh
from counterpoint.developer.rag import route as routing
from counterpoint.developer.rag import run as course
from counterpoint.developer.rag import telemetry
from counterpoint.developer.rag.generate import kept, plain, prompt, quoted, written
from counterpoint.developer.rag.rewrite import rewritten, to_judge_by
from counterpoint.developer.rag.run import Asked, Draft, Graded, Lead, Node, Route, Run, Seen
from counterpoint.developer.rag.validate import verdicts
from counterpoint.developer.relevance import Calibration
from counterpoint.developer.used import cited
from counterpoint.proto.decisions import Confidence, Source
from counterpoint.proto.errors import Denied, Permanent, Transient
from counterpoint.proto.line import ActionKind
from counterpoint.proto.memory import Commit, Get, Write
from counterpoint.proto.tasks import TaskDelegated

AGENT = "developer"
_KINDS: dict[Node, ActionKind] = {
    "route": "route", "retrieve": "search", "evaluate": "assess", "generate": "generate", "validate": "validate",
}  # fmt: skip
_DECISIONS: dict[Node, str] = {"evaluate": "retrieval_grade"}
_SHARES = {"route": 0.2, "web": 0.3, "generate": 0.6}
"""Of the time that is left, what one call may take."""
_ROUTE_TASK = """Where is this question best looked up? Answer with one JSON object {"mode": ..., "reason": ...}.
mode is "hybrid" (documents and conversations of this team, by words and meaning), "vector" (the same, by meaning alone,
for questions in unusual words) or "web" (it is about the world outside and changes by the day)."""


@dataclass(frozen=True)
class _Taken:
    """A step as it was taken: the run after it, and what is said of it. `also` is written with it."""

    run: Run
    decision: str
    reasoning: str
    confidence: Confidence | None = None
    model: str | None = None
    also: tuple[Write, ...] = ()


class Desk:
    """The steps of one delivery. `deadline_s` is how long they may take together with those of earlier deliveries; the
    deadline of the task counts where that is nearer. Steps taken `at_once` are in `held` instead of in memory; a run
    that was begun otherwise is not."""

    def __init__(
        self,
        message: TaskDelegated,
        memory: Memory,
        gateway: Gateway,
        known: Calibration,
        deadline_s: float,
        *,
        at_once: bool = False,
    ) -> None:
        self._message = message
        self._memory = memory
        self._gateway = gateway
        self._known = known
        self._deadline_s = deadline_s
        self._began = time.monotonic()
        self._spent_s, self._until = 0.0, 0.0
        self._evidence: Evidence | None = None
        self._summary = ""
        self.at_once = at_once
        self.held = Commit()

    @property
    def evidence(self) -> Evidence:
        """What was found last."""
        assert self._evidence is not None, "a run reads before it ends"
        return self._evidence

    async def begin(self) -> Run:
        """The run of this message where it stands; one whose evidence has changed looks again.

        What it found is read anew: memory lets nobody cite, in a commit, what this delivery has not read. What it has
        heard from outside is carried by the checkpoint, which is read as well.
        """
        kept, session = await self._memory.query(
            Get(store="checkpoints", id=self._checkpoint), Get(store="sessions", id=self._message.session_id)
        )
        self._summary = session.items[0].body.get("summary", "") if session.items else ""
        item = kept.items[0] if kept.items else None
        self.at_once = self.at_once and item is None
        run = Run(question=self._message.task.description) if item is None else record(item, Run)
        self._spent_s, self._until = run.spent_s, self._began + self._left_s(run)
        if item is None:
            return run
        if run.next == "retrieve":
            return run
        return run if await self._look(run) == run.found else course.lost(run)

    def last(self, run: Run) -> tuple[str, str]:
        """The ids of the action and the decision that the last step of a run left."""
        assert run.last is not None, "a run that has ended has taken a step"
        step = _step(run.steps - 1, run.last)
        kind, decision_type = _KINDS[run.last], _DECISIONS.get(run.last, run.last)
        return self._memory.id("action", AGENT, kind, step), self._memory.id("decision", AGENT, decision_type, step)

    async def take(self, node: Node, run: Run) -> Run:
        """One step, kept by its place in the run. One that cannot be taken, or that memory does not keep as it is, is
        a step that failed.

        Raises `Transient`, `Denied` or `Conflict`; and `Permanent` where nothing could be looked up, for that is not
        the same as nothing found.
        """
        try:
            taken = self._ready(await self._take(node, run))
            await self._keep(node, run, taken)
        except Permanent as error:
            if node != "route" and self._evidence is None:
                raise
            why = "; ".join(f"{problem.field} {problem.problem}" for problem in error.problems) or error.code
            taken = self._ready(_Taken(course.failed(run, node, why), "failed", why))
            await self._keep(node, run, taken)
        telemetry.observe(node, run, taken.run)
        return taken.run

    def _left_s(self, run: Run) -> float:
        left_s, deadline = self._deadline_s - run.spent_s, self._message.task.deadline
        return left_s if deadline is None else min(left_s, (deadline - datetime.now(UTC)).total_seconds())

    def _ready(self, taken: _Taken) -> _Taken:
        """The same, with what was found in the place of a draft that did not stand, and the time it took."""
        update: dict[str, object] = {"spent_s": round(self._spent_s + time.monotonic() - self._began, 3)}
        if taken.run.ending == "fallback":
            update["draft"] = plain(self.evidence.answers)
        return replace(taken, run=taken.run.model_copy(update=update))

    async def _take(self, node: Node, run: Run) -> _Taken:
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

    async def _route(self, run: Run) -> _Taken:
        task, searches_web = self._message.task, self._gateway.searches_web
        asked = routing.asked(run.question, routing.earlier(self._summary, task.title or task.description))
        route, also = routing.route(asked.text), tuple[Write, ...]()
        if self._gateway.model is not None and route.mode != "vector" and not self._late:
            route, also = await self._route_of_model(run, asked.text, route)
        route = routing.available(route, searches_web)
        reason = f"{route.reason}; {asked.why}" if asked.why else route.reason
        return _Taken(course.routed(run, route, asked), route.mode, reason, also=also)

    async def _route_of_model(self, run: Run, asked: str, rules: Route) -> tuple[Route, tuple[Write, ...]]:
        """What the model says, once for questions of the same words; the rules where it says nothing of use."""
        stored = routing.same_words(asked)
        known = await self._memory.get("routes", stored)
        if known is not None:
            before = record(known, Route)
            return before.model_copy(update={"reason": f"{before.reason} (as for the same words before)"}), ()
        messages = [{"role": "system", "content": _ROUTE_TASK}, {"role": "user", "content": asked}]
        try:
            said = await self._gateway.generate(
                self._memory, messages, key=_key(run, "route"), deadline_s=self._time_s("route"), max_tokens=100,
                as_json=True,
            )  # fmt: skip
            answer = json.loads(said.text)
            route = Route(mode=answer["mode"], reason=storable(str(answer["reason"])[:500]), by=said.usage.model)
        except (Permanent, Denied, Transient) as error:
            return rules.model_copy(update={"reason": f"{rules.reason} (the model was not to be had: {error})"}), ()
        except (ValueError, KeyError, TypeError, ValidationError):
            return rules.model_copy(update={"reason": f"{rules.reason} (what the model said could not be used)"}), ()
        return route, (put("routes", stored, route),)

    async def _retrieve(self, run: Run) -> _Taken:
        asked = run.asked or Asked(text=run.question)
        found = await self._look(run)
        if run.route is not None and run.route.mode == "web" and not run.leads and not self._late:
            run = await self._leads(run)
        texts = " | ".join((asked.text, *asked.also))
        reason = f"{asked.why}: {texts}" if asked.why else f"looked for: {texts}"
        counted = f"{len(found)} passages, {len(self.evidence.tried)} earlier attempts"
        return _Taken(course.retrieved(run, found), counted, reason)

    async def _leads(self, run: Run) -> Run:
        """Pages of the web, which nobody vouches for: where one might look, and no evidence."""
        try:
            found = await self._gateway.search_web(
                self._memory, run.meant[:400], key=_key(run, "web"), deadline_s=self._time_s("web")
            )
        except (Permanent, Denied, Transient) as error:
            return run.noting(f"web_unavailable: {error}")
        leads = tuple(Lead(title=storable(each.title)[:200], url=storable(each.url)[:500]) for each in found.results)
        return run.model_copy(update={"leads": leads})

    def _evaluate(self, run: Run) -> _Taken:
        asked = run.asked or Asked(text=run.question)
        graded = answers.graded(
            to_judge_by(run), self.evidence.answers, self._known.answer, self.evidence.beside, again=run.rewrites > 0
        )
        other = rewritten(run.meant, asked, self.evidence.answers, run.rewrites)
        held = Graded(sufficient=graded.sufficient, probability=round(graded.probability, 4), reason=graded.reason)
        after = course.evaluated(run, held, other, late := self._late)
        if after.next is None and late and other is not None and run.rewrites < course.MAX_REWRITES:
            after = after.noting("the time for it was over before other words could be tried")
        said = {"generate": "go on", "retrieve": f"look again: {other.text if other else ''}"}.get(
            after.next or "", "stop"
        )
        confidence = Confidence(score=held.probability, band=band(held.probability) if held.sufficient else "low")
        if self.evidence.answers and not self.evidence.answers[0].trusted:
            confidence = unvouched(confidence)
        return _Taken(after, said, graded.reason, confidence)

    async def _generate(self, run: Run) -> _Taken:
        draft = await self._draft(run)
        after = course.generated(run.noting(*self._said), draft)
        reason = f"{len(draft.sentences)} sentences with {len(draft.citations)} citations, by {draft.by}"
        return _Taken(after, "declined" if draft.declined else "drafted", reason, model=_model(draft))

    async def _draft(self, run: Run) -> Draft:
        self._said: tuple[str, ...] = ()
        found = self.evidence.answers
        if self._gateway.model is not None and not self._late:
            messages = prompt(run.meant, found, run.draft, run.verdicts)
            try:
                said = await self._gateway.generate(
                    self._memory, messages, key=_key(run, "generate"), deadline_s=self._time_s("generate")
                )
            except (Permanent, Denied, Transient) as error:
                self._said = (f"the model was not to be had, so the answer is made of quotes: {error}",)
            else:
                if said.text.strip():
                    return written(storable(said.text), found, said.usage.model)
                self._said = ("the model wrote nothing, so the answer is made of quotes",)
        if run.draft is not None and run.draft.by == "quotes":
            return kept(run.draft, run.verdicts)
        return quoted(to_judge_by(run), found, self._known.answer.threshold, self.evidence.beside)

    def _validate(self, run: Run) -> _Taken:
        draft = run.draft or Draft()
        judged = verdicts(draft, (*self.evidence.answers, *self.evidence.beside))
        after = course.validated(run, judged, self._late)
        wrong = [f"{n}: {verdict.problem}" for n, verdict in enumerate(judged, 1) if not verdict.supported]
        supported = len(judged) - len(wrong)
        said = {"answered": "supported", "fallback": "fall back to plain retrieval"}.get(after.ending or "", "again")
        reason = "; ".join([f"{supported} of {len(judged)} sentences are supported by what they cite", *wrong])
        return _Taken(after, said, reason)

    async def _look(self, run: Run) -> tuple[Seen, ...]:
        asked, meaning_alone = (
            run.asked or Asked(text=run.question),
            run.route is not None and run.route.mode == "vector",
        )
        answers = await look(self._memory, self._message, asked, meaning_alone)
        self._evidence = weigh(self._message, answers, self._known, asked)
        return tuple(Seen(id=hit.item.id, version=hit.item.version) for hit in self._evidence.answers)

    async def _keep(self, node: Node, before: Run, taken: _Taken) -> None:
        step = _step(before.steps, node)
        action_id, decision_id = self.last(before) if before.last else (None, None)
        sources = self._used(node, taken.run)
        decided = decide(
            self._memory, AGENT, _DECISIONS.get(node, node), taken.decision, taken.reasoning,
            session_id=self._message.session_id, confidence=taken.confidence, sources=sources, step=step,
            parent=decision_id,
        )  # fmt: skip
        if taken.model is not None:
            decided = decided.model_copy(update={"model": taken.model})
        acted = act(
            self._memory, AGENT, _KINDS[node], taken.reasoning, result=taken.decision,
            after=(action_id,) if action_id else self._message.after,
            sources=sources, decision=decided, step=step,
        )  # fmt: skip
        line = put("actions", acted.action_id, acted)
        if self.at_once:
            self.held = self.held.model_copy(
                update={"writes": (*self.held.writes, line), "messages": (*self.held.messages, send(decided))}
            )
            return
        checkpoint = Write(
            store="checkpoints", id=self._checkpoint, body=taken.run.model_dump(mode="json"), expect=before.steps
        )
        await self._memory.step(
            Commit(
                step=step, last=False, writes=(line, checkpoint, *taken.also), messages=(send(decided),)
            )
        )  # fmt: skip

    def _used(self, node: Node, run: Run) -> tuple[Source, ...]:
        """Basis of a step's decision: the best passage for the grade, what is cited for a draft and its check."""
        if self._evidence is None or node in ("route", "retrieve"):
            return ()
        if node == "evaluate":
            return tuple(hit.basis for hit in self._evidence.answers[:1])
        return cited(run.draft.citations if run.draft else (), self._evidence)

    @property
    def _checkpoint(self) -> str:
        return self._memory.id("run")

    @property
    def _late(self) -> bool:
        return time.monotonic() >= self._until

    def _time_s(self, call: str) -> float:
        return max(0.1, _SHARES[call] * (self._until - time.monotonic()))


def _step(number: int, node: Node) -> str:
    return f"{number:02d}-{node}"


def _key(run: Run, what: str) -> str:
    return f"{run.steps:02d}-{what}"


def _model(draft: Draft) -> str | None:
    return None if draft.by in ("quotes", "plain retrieval") else draft.by


def storable(text: str) -> str:
    """What came from outside, without the characters that no record may hold."""
    return text.encode(errors="replace").decode().replace("\0", "")
