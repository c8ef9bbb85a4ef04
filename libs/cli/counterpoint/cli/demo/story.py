"""The first six parts of the demo, in one project. Their texts come from the incident's file."""

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.cli.demo.checks import DemoTranscript
from counterpoint.cli.demo.incident import DemoIncident, DemoQuestion, IncidentEvents, UnknownTask
from counterpoint.cli.demo.memory import take_back
from counterpoint.cli.demo.replay import replay
from counterpoint.cli.demo.stage import DemoStage
from counterpoint.cli.demo.task import holds, is_ended, proposed, state, waits_for
from counterpoint.cli.render.tree import draw
from counterpoint.proto.line import Action
from counterpoint.proto.tasks import Task

OWN_PROJECT = "counterpoint"
"""Project of Counterpoint's README, since it contains the solution of the incident."""
OWN_DOCUMENT = "README.md"


@dataclass(frozen=True)
class IncidentStory:
    """One incident, played on a running stack. The incident's name is the project."""

    incident: DemoIncident
    stage: DemoStage
    transcript: DemoTranscript

    def play(self) -> None:
        """Play all six parts."""
        self._knowledge()
        first = self._first_time()
        again = self._second_time(first)
        if self.incident.unknown:
            self._unknown(self.incident.unknown)
        self._why(first)
        replay(self.stage, first, again)
        take_back(self.stage.cast.administrator, self.transcript, f"{self.incident.name}-memory")

    def _knowledge(self) -> None:
        self.transcript.begin("1. What is known")
        self.stage.ingest("the documents of the team", self.incident.knowledge)
        self.stage.ingest("Counterpoint's README, in a separate project", [self.stage.root / OWN_DOCUMENT], OWN_PROJECT)
        for question in self.incident.questions:
            self._ask(question)

    def _ask(self, question: DemoQuestion) -> None:
        self.transcript.say(f"asked: {question.text}")
        task = self.stage.submit({"kind": "question", "description": question.text})
        findings = task.findings
        if not question.answered:
            self.transcript.card(f"question: {question.text}", task)
            self.transcript.check(
                "it is not answered, and the task says what is needed",
                task.state == "input_required"
                and task.escalation
                and task.escalation.code == "insufficient_evidence"
                and task.escalation.needs
                and not task.result,
                state(task),
            )
            return
        self.transcript.show((task.result or "no answer") + "\n")
        cited = findings.citations if findings else ()
        self.transcript.check("it is answered", task.state == "completed" and task.result, state(task))
        self.transcript.check(
            f"the answer cites {question.cites}",
            any(one.source_path.endswith(question.cites or "") for one in cited),
            [one.source_path for one in cited],
        )
        unresolved = [one.source_path for one in cited if not self.stage.resolves(one.source_path, one)]
        self.transcript.check("each citation matches its source literally", cited and not unresolved, unresolved)
        if question.corrected:
            grades = [one for one in self.stage.line(task) if one.agent == "developer" and one.kind == "assess"]
            for one in grades:
                self.transcript.show(f"  {one.reasoning}\n  → {one.result}")
            self.transcript.check(
                "the answer was found only after the question was rewritten",
                len(grades) > 1 and (grades[-1].result or "") == "go on",
                [one.result for one in grades],
            )

    def _first_time(self) -> Task:
        incident = self.incident
        self.transcript.begin("2. It breaks for the first time")
        if incident.before:
            self.stage.send("successful runs before", incident.before)
        known = self.stage.ids()
        self.stage.send("the failure", incident.failure)
        task = self.stage.wait_for_new_task(known, "the failure has become a task with a proposal", proposed(1))
        self.transcript.card("failure", task)
        self._check_first_card(task)
        proposals = [task.proposal]
        for number, attempt in enumerate(incident.attempts, 1):
            self.transcript.say(f"reported: attempt {number} {attempt.outcome}: {attempt.error_message}")
            self.stage.report(task, number, attempt.model_dump(exclude_none=True))
            if number < len(incident.attempts):
                task = self.stage.wait_until(task, f"attempt {number + 1} to be proposed", proposed(number + 1))
                self.transcript.show(f"\nattempt {number + 1}:\n{task.proposal}\n")
                self.transcript.check("the next proposal is different", task.proposal not in proposals, task.proposal)
                proposals.append(task.proposal)
        task = self.stage.wait_until(task, "the repeated failure to escalate", waits_for("override"))
        self.transcript.card("escalated", task)
        self.transcript.check(
            "the repeated failure was escalated to the calling LLM automatically",
            task.escalation and (task.escalation.code, task.escalation.to) == ("repeated_failure", "calling_llm"),
            state(task),
        )
        task = self._overridden(task)
        return self._resolved(task)

    def _overridden(self, task: Task) -> Task:
        given = self.incident.override
        self.transcript.say(f"the calling LLM overrides: {given.instruction}")
        number = (task.attempt or 0) + 1
        self.stage.cast.calling_llm.post(
            f"/v1/tasks/{task.task_id}/override", given.model_dump(mode="json"), project=task.project
        )
        task = self.stage.wait_until(task, f"attempt {number} to be proposed", proposed(number))
        self.transcript.show(f"\nattempt {number}:\n{task.proposal}\n")
        self.transcript.check(
            "the next proposal is the instruction, quoted", holds(task.proposal, given.instruction), task.proposal
        )
        self.transcript.check(
            "the override is recorded with its author",
            task.override and (task.override.by, task.override.by_kind) == ("calling_llm", "agent"),
            task.override and task.override.model_dump(),
        )
        return task

    def _resolved(self, task: Task) -> Task:
        resolution, number = self.incident.resolution, task.attempt or 0
        if resolution.events:
            self.stage.send("the successful run", IncidentEvents.model_construct(events=resolution.events, task=None))
            task = self.stage.wait_until(task, "the incident to be closed by the successful run", is_ended)
            observed = task.outcomes.get(str(number), {})
            self.transcript.check(
                "the run has closed the incident, with an observed outcome",
                task.state == "completed" and observed.get("evidence") == "observed",
                state(task) | {"outcomes": task.outcomes},
            )
        self.transcript.say(f"a person reports: {resolution.report.outcome}, {resolution.report.note}")
        self.stage.report(task, number, resolution.report.model_dump(exclude_none=True))
        note = resolution.report.note

        def noted(now: Task) -> bool:
            return is_ended(now) and now.outcomes.get(str(number), {}).get("note") == note

        task = self.stage.wait_until(task, "the person's report to be recorded", noted)
        self.transcript.card("closed", task)
        kept = task.outcomes.get(str(number), {})
        self.transcript.check(
            "the change of the person is recorded with the attempt, as reported",
            task.state == "completed" and kept.get("evidence") == "reported" and kept.get("outcome") == "succeeded",
            state(task) | {"outcomes": task.outcomes},
        )
        return task

    def _second_time(self, first: Task) -> Task:
        incident = self.incident
        self.transcript.begin("3. It breaks again")
        known = self.stage.ids()
        self.stage.send("the same fault on another day", incident.again)
        task = self.stage.wait_for_new_task(known, "the failure has become a task with a proposal", proposed(1))
        self.transcript.card("again", task)
        attempts = task.findings.similar_attempts if task.findings else ()
        citations = task.findings.citations if task.findings else ()
        tried_texts = [f"{one.outcome} by {one.by}: {one.tried}" for one in attempts]
        self.transcript.check(
            "the text of the error differs, and it is recognised as the same failure",
            task.error_message != first.error_message and task.error_signature == first.error_signature,
            [first.error_message, task.error_message, first.error_signature, task.error_signature],
        )
        failed = [one for one in attempts if one.outcome == "failed"]
        self.transcript.check(
            f"the card shows {incident.recognised.failed} failed attempts",
            len(failed) == incident.recognised.failed,
            tried_texts,
        )
        worked = [one for one in attempts if one.outcome == "succeeded"]
        self.transcript.check(
            f"the card shows the fix and its author, {incident.recognised.by}",
            [(one.id, one.by) for one in worked] == [(first.attempt_id, incident.recognised.by)]
            and holds(worked[0].tried, incident.override.instruction),
            tried_texts,
        )
        self.transcript.check(
            "the earlier fix is proposed first", holds(task.proposal, incident.override.instruction), task.proposal
        )
        self.transcript.check(
            "the proposal cites the learned attempt",
            any((one.store, one.id) == ("attempts", first.attempt_id) for one in citations),
            [f"{one.store}/{one.id}" for one in citations],
        )
        return task

    def _unknown(self, unknown: UnknownTask) -> None:
        self.transcript.begin("4. A failure without documents")
        self.transcript.say(f"submitted: {unknown.task.description}")
        task = self.stage.submit(unknown.task.model_dump(mode="json", exclude_defaults=True))
        self.transcript.card("unknown", task)
        self.transcript.check(
            "the task stops with low confidence, and says what it needs and how to supply it",
            task.waiting_for == "documents"
            and task.confidence
            and task.confidence.band == "low"
            and task.escalation
            and task.escalation.needs
            and all(need.how for need in task.escalation.needs),
            state(task),
        )
        before = len(self.stage.line(task))
        self.stage.ingest("an unrelated document", [unknown.unrelated])
        self.stage.wait_for_evaluation(task, lambda line: _assessed(line, before))
        still = self.stage.task(task)
        self.transcript.check(
            "the unrelated document does not resume the task",
            still.waiting_for == "documents" and still.resumes == 0,
            state(still),
        )
        self.stage.ingest("the needed document", [unknown.document])
        task = self.stage.wait_until(task, "the task to resume automatically", lambda now: now.waiting_for == "outcome")
        self.transcript.card("resumed", task)
        self.transcript.check("the needed document has resumed the task, once", task.resumes == 1, state(task))
        cited = [one.source_path for one in task.findings.citations] if task.findings else []
        self.transcript.check(
            "the proposal cites that document", any(self.stage.source(unknown.document) == one for one in cited), cited
        )
        self.transcript.say("reported: it worked")
        self.stage.report(task, task.attempt or 1, {"outcome": "succeeded"})
        task = self.stage.wait_until(task, "the task to complete", is_ended)
        self.transcript.check("the task completes", task.state == "completed", state(task))

    def _why(self, first: Task) -> None:
        self.transcript.begin("5. Why")
        line = self.stage.cast.person.get(f"/v1/tasks/{first.task_id}/line", project=first.project)
        self.transcript.show(draw(line))
        actions = self.stage.line(first)
        agents = {action.agent for action in actions}
        self.transcript.check(
            "it has actions of router, manager and developer",
            {"router", "manager", "developer"} <= agents,
            sorted(agents),
        )
        ids = {action.action_id for action in actions}
        loose = [a.kind for a in actions if any(before not in ids for before in a.after)]
        self.transcript.check("each action refers to actions of the same line", not loose, loose)
        kinds = [action.kind for action in actions]
        wanted = {"route", "search", "assess", "propose", "outcome", "escalate", "override", "complete"}
        self.transcript.check("it contains all kinds of actions", wanted <= set(kinds), kinds)
        report = self.stage.cast.administrator.get("/v1/audit/verify", project=self.incident.name)
        self.transcript.check("the audit log verifies", report["ok"] and report["commits"] > 0, report)
        self.transcript.show(f"  {report['commits']} commits, {report['records']} record versions, all unchanged")
        tasks = [task for task in self.stage.tasks() if task.kind != "question"]
        self.transcript.check(
            "each failure became exactly one task",
            len(tasks) == 2 + (self.incident.unknown is not None),
            [task.title or task.description for task in tasks],
        )

    def _check_first_card(self, task: Task) -> None:
        arrival, findings, context = self.incident.failure, task.findings, task.context or {}
        self.transcript.check("the card names the failed job and the error", task.error_message, state(task))
        if arrival.events:
            named = {name: context.get(name) for name in ("tries", "log_url", "owner")}
            self.transcript.check("it shows the tries, the log and the owner", all(named.values()), named)
        rests = {(row.kind, row.name, row.owner) for row in findings.downstream} if findings else set()
        missing = [row.name for row in arrival.downstream if (row.kind, row.name, row.owner) not in rests]
        if arrival.downstream:
            self.transcript.check("it shows what is downstream, with the owners", not missing, sorted(map(str, rests)))
        self.transcript.check(
            "it says that the search for earlier attempts found none",
            findings and not findings.similar_attempts,
            findings and [one.tried for one in findings.similar_attempts],
        )
        quoted = [one for one in findings.citations if one.store == "chunks"] if findings else []
        foreign = [one.source_path for one in quoted if one.source_path.startswith(OWN_DOCUMENT)]
        self.transcript.check("it shows nothing of another project", not foreign, foreign)
        self.transcript.check(
            "it quotes a paragraph of the team's documents, with its source",
            quoted and holds(task.proposal, quoted[0].quote) and self.stage.resolves(quoted[0].source_path, quoted[0]),
            task.proposal,
        )
        self.transcript.check(
            "it shows its confidence with its terms", task.confidence and task.confidence.terms, state(task)
        )


def _assessed(line: Sequence[Action], before: int) -> bool:
    return any(action.agent == "developer" and action.kind == "assess" for action in line[before:])
