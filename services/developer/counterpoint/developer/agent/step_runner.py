"""Steps of an investigation or of the work on a plan: their reads, their calls of a model and their commits."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from counterpoint.client import Gateway, Memory, act, decide, put, record, send
from counterpoint.client.gateway import Completion
from counterpoint.developer.agent import investigation as transitions
from counterpoint.developer.agent.context import read_context
from counterpoint.developer.agent.form import Form
from counterpoint.developer.agent.investigation import Investigation, ModelTurn
from counterpoint.developer.agent.judge import act_of, judged, without_links
from counterpoint.developer.agent.prompt import digest, prompt, size, task_text
from counterpoint.developer.agent.readings import Reading, first_readings, record_reading, with_readings
from counterpoint.developer.agent.reply import turn_of
from counterpoint.developer.agent.telemetry import observe
from counterpoint.developer.agent.tools import TOOLS, Surroundings, provider_readings
from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.gather import evidence_of, search
from counterpoint.developer.language.storable import storable
from counterpoint.developer.policies.commits import AGENT, join_commits, kind_and_text, opening_commit
from counterpoint.developer.policies.lanes import conclude
from counterpoint.developer.policies.results import Conclusion
from counterpoint.developer.policies.sources import cited_sources, sources_of
from counterpoint.proto.decisions import Source
from counterpoint.proto.errors import Denied, Permanent, Transient
from counterpoint.proto.line import ActionKind
from counterpoint.proto.memory import Commit, Get, Write
from counterpoint.proto.tasks import TaskDelegated
from counterpoint.proto.words import quantity

CALL_SHARE = 0.375
"""Maximum share of the time limit that one call may take."""
MAX_TOKENS = 1_200
"""Maximum output tokens of one call."""


@dataclass(frozen=True)
class _StepText:
    """A step on the line: the kind of its action, its decision, and the `model` that made it, if one did."""

    kind: ActionKind
    decision_type: str
    decision: str
    reasoning: str
    sources: tuple[Source, ...] = ()
    model: str | None = None


class InvestigationRunner:
    """Runs the steps of one delivery.

    `deadline_s` limits the time of all steps, including earlier deliveries, unless the task's deadline is earlier.
    `form` is that of the proposals of the lane.
    """

    def __init__(
        self,
        message: TaskDelegated,
        memory: Memory,
        gateway: Gateway,
        calibration: Calibration,
        deadline_s: float,
        form: Form,
    ) -> None:
        self._message = message
        self._memory = memory
        self._gateway = gateway
        self.calibration = calibration
        self._deadline_s = deadline_s
        self.form = form
        self._began = time.monotonic()
        self._spent_s, self._until = 0.0, 0.0
        self._first: tuple[Reading, ...] = ()
        self._looked: list[tuple[Reading, ...]] = []
        self._rules: Conclusion | None = None
        self.readings: tuple[Reading, ...] = ()

    @property
    def rules(self) -> Conclusion:
        """The conclusion of the rules, without downstream rows."""
        assert self._rules is not None, "a run begins with its evidence"
        return self._rules

    @property
    def rules_action(self) -> str:
        """The id of the action with the result of the rules."""
        return self._memory.id("action", AGENT, "assess", _name(0))

    async def run(self) -> Investigation:
        """Run the remaining steps and return the ended run.

        Raises `Transient`, `Denied` or `Conflict`, and `Permanent` if the result of the rules cannot be recorded.
        """
        run = await self._resume()
        if run.steps == 0:
            run = await self._record_rules(run)
        while run.ending is None:
            run = await self._step(run)
        return run

    async def _resume(self) -> Investigation:
        """Read the evidence, and the results of the tools again, since a commit may only cite what its own delivery has
        read. The replies of the model are in the checkpoint."""
        checkpoint, task = await self._memory.query(
            Get(store="checkpoints", id=self._checkpoint), Get(store="tasks", id=self._message.task_id)
        )
        if not task.items:
            raise Transient("the record of the task does not exist yet")
        run = record(checkpoint.items[0], Investigation) if checkpoint.items else Investigation()
        self._spent_s, self._until = run.spent_s, self._began + self._left_s(run)
        found = await search(self._memory, self._message)
        evidence = evidence_of(self._message, found, self.calibration)
        self._rules = conclude(self._message, evidence, self.calibration)
        context = await read_context(self._memory, self._message, evidence.attempts)
        own = record_reading("task", task.items[0], task_text(self._message))
        first = first_readings(evidence, own)
        if "provider" in self.form.supporting:
            rows = [provider for _, provider in evidence.providers.found]
            first = with_readings(first, provider_readings(found["providers"].items, lambda _: rows, own.hit.text))
        self._first = with_readings(first, context)
        self.readings = self._first
        for turn in run.turns:
            await self._look(turn)
        return run

    async def _record_rules(self, run: Investigation) -> Investigation:
        """Commit the search, the assessment and the result of the rules, which is kept beside that of the model."""
        opening, *last = opening_commit(self._message, self._memory, self.rules)
        result = self.rules.result
        decision = ": ".join(kind_and_text(result))
        reasoning = f"by the rules, before a model works on it: {result.reasoning}"
        text = _StepText("assess", "rules", decision, reasoning, sources_of(result, self.rules.evidence))
        run = run.model_copy(update={"last": tuple(last)})
        return await self._commit(run, transitions.after_rules(run), text, opening)

    async def _step(self, run: Investigation) -> Investigation:
        """Run one turn and commit it; if memory refuses to keep it, without what the model said."""
        if time.monotonic() >= self._until:
            return await self._commit_fault(run, "late", "the time limit was reached")
        messages = prompt(self.form, run, self._first, self._looked, self.readings)
        try:
            reply = await self._gateway.generate(
                self._memory, messages, key=_name(run.steps), max_tokens=MAX_TOKENS, as_json=True,
                deadline_s=max(0.1, min(CALL_SHARE * self._deadline_s, self._until - time.monotonic())),
            )  # fmt: skip
        except (Permanent, Denied, Transient) as error:
            return await self._commit_fault(run, "unavailable", f"the model was not available: {error}")
        after, turn = await self._after_reply(run, reply, digest(messages), size(messages))
        try:
            return await self._commit(run, after, self._turn_text(after, turn))
        except Permanent as error:
            return await self._commit_fault(run, "unavailable", f"memory does not keep its reply: {error.code}")

    async def _after_reply(
        self, run: Investigation, reply: Completion, prompt_sha256: str, prompt_chars: int
    ) -> tuple[Investigation, ModelTurn]:
        text = storable(reply.text)
        turn, chars = transitions.permitted(run, turn_of(text, reply.finish)), prompt_chars + len(text)
        run = run.model_copy(update={"model": reply.usage.model})
        if turn.proposal is not None and turn.problem is None:
            evidence = self.rules.evidence
            sections, problems = judged(turn.proposal, self.readings, self.form, evidence, reply.usage.model)
            if act_of(sections, self.form) is not None:
                return transitions.after_proposal(run, turn, prompt_sha256, chars, sections, len(problems)), turn
            why = "; ".join(problems[:5]) or "it is empty"
            turn = turn.model_copy(update={"problem": f"no {self.form.act_name} in it is supported: {why}"})
        await self._look(turn)
        return transitions.after_turn(run, turn, prompt_sha256, chars), turn

    async def _look(self, turn: ModelTurn) -> None:
        """Make the tool call of a turn, if it has one."""
        found: tuple[Reading, ...] = ()
        if turn.looks and turn.tool is not None:
            around = Surroundings(self._memory, self._message, self.calibration, self.rules.evidence.attempts)
            found = await TOOLS[turn.tool].run(around, turn.arguments)
        self._looked.append(found)
        self.readings = with_readings(self.readings, found)

    def _turn_text(self, after: Investigation, turn: ModelTurn) -> _StepText:
        kind = self.form.decision_type
        thought = f"{turn.hypothesis}; would tell: {turn.would_tell}" if turn.would_tell else turn.hypothesis
        reasoning = without_links(thought) or "the model gave no hypothesis"
        if turn.looks:
            decision = without_links(f"{turn.call}: {quantity(len(self._looked[-1]), 'reading')}")
            return _StepText("search", kind, decision, reasoning, model=after.model)
        if after.ending != "proposed":
            decision = f"cannot be used: {turn.problem_in_short}"
            return _StepText("generate", kind, decision, reasoning, model=after.model)
        decision = f"a proposal; {after.cut} sentences of it are not supported"
        cited = (citation for section in after.sections for citation in section.cited)
        sources = cited_sources(cited, self.rules.evidence)
        return _StepText("generate", kind, decision, reasoning, sources, after.model)

    async def _commit_fault(self, run: Investigation, ending: transitions.Ending, reason: str) -> Investigation:
        text = _StepText("generate", self.form.decision_type, "failed", reason)
        return await self._commit(run, transitions.after_fault(run, ending, reason), text)

    async def _commit(
        self, before: Investigation, after: Investigation, text: _StepText, opening: Commit | None = None
    ) -> Investigation:
        line = self._line(before, text)
        spent_s = round(self._spent_s + time.monotonic() - self._began, 3)
        last = line.writes[-1].id, line.messages[-1].data["decision_id"]
        after = after.model_copy(update={"spent_s": spent_s, "last": last})
        body = after.model_dump(mode="json")
        checkpoint = Write(store="checkpoints", id=self._checkpoint, body=body, expect=before.steps)
        commit = join_commits(opening or Commit(), line)
        update = {"step": _name(before.steps), "last": False, "writes": (*commit.writes, checkpoint)}
        await self._memory.step(commit.model_copy(update=update))
        observe(before, after)
        return after

    def _line(self, run: Investigation, text: _StepText) -> Commit:
        """Return the action and the decision of the step after a run."""
        step, (after, parent) = _name(run.steps), run.last
        decision = decide(
            self._memory,
            AGENT,
            text.decision_type,
            text.decision,
            text.reasoning,
            session_id=self._message.session_id,
            sources=text.sources,
            parent=parent,
            step=step,
        ).model_copy(update={"model": text.model})
        action = act(
            self._memory,
            AGENT,
            text.kind,
            text.reasoning,
            result=text.decision,
            after=(after,),
            sources=text.sources,
            decision=decision,
            step=step,
        )
        return Commit(writes=(put("actions", action.action_id, action),), messages=(send(decision),))

    @property
    def _checkpoint(self) -> str:
        return self._memory.id("investigation")

    def _left_s(self, run: Investigation) -> float:
        left_s, deadline = self._deadline_s - run.spent_s, self._message.task.deadline
        return left_s if deadline is None else min(left_s, (deadline - datetime.now(UTC)).total_seconds())


def _name(number: int) -> str:
    """Return the name of a step, which is also the key of its call."""
    return f"{number:02d}-{'turn' if number else 'rules'}"
