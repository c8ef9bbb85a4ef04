"""The incidents of examples/ through the developer alone: gate, attempts, override, recognition."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from agents.developer_meaning import ModelSimilarity
from agents.developer_memory import Shelf
from agents.steps import handle_in_steps

from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Transient
from counterpoint.proto.line import Action
from counterpoint.proto.memory import Commit
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVICES = EXAMPLES.parent / "services"
ORDERS = EXAMPLES / "incidents" / "orders.yaml"
INCIDENTS = sorted(path for path in (EXAMPLES / "incidents").glob("*.yaml"))
DNS_ERROR = "could not resolve ldap.internal: DNS lookup timed out after 5 s (resolver 10.20.0.{}:53)"
RAN = (
    "prod/orders_ingest.fetch_orders failed after 3 tries for 2026-11-{} 00:00 UTC. "
    "Find out why and what puts it right. Downstream of it: prod/orders_ingest.clean_orders, "
    "prod/finance_daily.daily_revenue, prod/inventory_sync.stock_levels."
)
FROM_EVENTS = {
    "failure": {
        "kind": "troubleshoot",
        "description": RAN.format(17),
        "error_message": DNS_ERROR.format(2),
    },
    "again": {
        "kind": "troubleshoot",
        "description": RAN.format(18),
        "error_message": DNS_ERROR.format(3),
    },
}
LANES = {"troubleshoot": "investigate", "question": "answer", "plan": "plan", "develop": "build"}


def story_of(path: Path) -> dict[str, Any]:
    """An incident file."""
    story: dict[str, Any] = yaml.safe_load(path.read_text())
    return story


def knowledge_of(path: Path, folder: str) -> Path:
    """A folder an incident file names, whose path is relative to the file."""
    return (path.parent / folder).resolve()


@pytest.fixture(scope="session")
def meaning() -> ModelSimilarity:
    return ModelSimilarity()


class SimulatedDeveloper:
    """Delegates to the developer and plays the manager's part in the records: outcomes, overrides."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.sent = 0

    async def work(self, task_id: str, task: dict[str, Any], **more: Any) -> tuple[TaskWorked, Commit]:
        self.sent += 1
        submitted = SubmitTask.model_validate(task)
        given = {"attempt": 1, "lane": LANES[submitted.kind], "after": ("before",), **more}
        message = TaskDelegated(
            task_id=task_id, project=self.shelf.project, session_id=f"session-{task_id}", task=submitted, **given
        )
        record = {
            "task_id": task_id,
            "override": message.override.model_dump(mode="json") if message.override else None,
        }
        self.shelf.put("tasks", task_id, record)
        memory = self.shelf.delivered(f"message-{self.sent}", task_id, self.sent)
        commit = await handle_in_steps(message, memory)
        await memory.step(commit)
        (worked,) = (out for out in commit.messages if out.type == TaskWorked.TYPE)
        return TaskWorked.model_validate(worked.data), commit

    def outcome(self, attempt_id: str | None, **outcome: Any) -> None:
        assert attempt_id
        body = {**self.shelf.one("attempts", attempt_id).body, "by_kind": "person", **outcome}
        self.shelf.put("attempts", attempt_id, body, integrity=1, author="manager")


def cited_spans_exist(shelf: Shelf, worked: TaskWorked) -> None:
    """Every citation is exactly what the cited item holds at that place, and is quoted in the text."""
    for citation in worked.findings.citations:
        item = shelf.one(citation.store, citation.id)
        assert item.version >= citation.version
        if citation.store == "chunks":
            whole = shelf.one("documents", citation.source_path).body["text"]
            assert whole[citation.start : citation.end] == citation.quote
        else:
            value: Any = item.body
            for part in citation.source_path.partition("#")[2].split("."):
                value = value[int(part)] if isinstance(value, list) else value[part]
            assert value == citation.quote
        for line in citation.quote.splitlines():
            assert line.strip() in (worked.text or "")


@pytest.mark.parametrize("path", INCIDENTS, ids=lambda path: path.stem)
async def test_two_attempts_fail_the_override_helps_and_the_next_task_starts_with_it(
    path: Path, meaning: ModelSimilarity
) -> None:
    story = story_of(path)
    shelf = Shelf(meaning)
    for folder in story["knowledge"]:
        shelf.ingest_folder(knowledge_of(path, folder), EXAMPLES)
    developer = SimulatedDeveloper(shelf)
    task = story["failure"].get("task", FROM_EVENTS["failure"])

    first, _ = await developer.work("task-1", task)
    assert first.outcome == "proposed"
    assert first.confidence
    assert 0.65 <= first.confidence.score < 1
    assert first.findings.similar_attempts == ()
    cited_spans_exist(shelf, first)
    developer.outcome(first.attempt_id, outcome="failed", outcome_error=task["error_message"])

    second, _ = await developer.work("task-1", task, attempt=2)
    assert second.outcome == "proposed"
    assert second.text != first.text
    assert [known.outcome for known in second.findings.similar_attempts] == ["failed"]
    assert any("failed once" in caveat for caveat in second.findings.caveats)
    cited_spans_exist(shelf, second)
    developer.outcome(second.attempt_id, outcome="failed", outcome_error=task["error_message"])

    said = story["override"]
    override = OverrideGiven(**said, by="claude", by_kind="agent")
    third, _ = await developer.work("task-1", task, attempt=3, override=override)
    assert third.outcome == "proposed"
    assert said["instruction"] in (third.text or "").replace("\n> ", "\n")
    assert all(constraint in (third.text or "") for constraint in said["constraints"])
    assert first.findings.citations[0].quote not in (third.text or "")
    cited_spans_exist(shelf, third)
    developer.outcome(third.attempt_id, outcome="succeeded", evidence="observed")
    developer.outcome(third.attempt_id, evidence="reported", note=story["resolution"]["report"]["note"])

    again, commit = await developer.work("task-2", story["again"].get("task", FROM_EVENTS["again"]))
    assert again.outcome == "proposed"
    assert again.findings.citations[0].store == "attempts"
    assert again.findings.citations[0].id == third.attempt_id
    assert again.findings.citations[0].quote == said["instruction"]
    assert story["resolution"]["report"]["note"] in (again.text or "")
    outcomes = [known.outcome for known in again.findings.similar_attempts]
    assert outcomes == ["succeeded", *["failed"] * story["recognised"]["failed"]]
    assert again.findings.similar_attempts[0].by == "claude"
    summaries = [known.summary for known in again.findings.similar_attempts]
    assert summaries[0] is None
    assert all(summaries[1:])
    assert "attempts at this error have failed twice" in again.findings.caveats
    assert sum("failed once (" in caveat for caveat in again.findings.caveats) == story["recognised"]["failed"]
    assert again.confidence
    assert again.confidence.terms
    assert again.confidence.terms.similar_dag
    assert again.confidence.score > first.confidence.score
    cited_spans_exist(shelf, again)
    (attempt,) = (write for write in commit.writes if write.store == "attempts")
    assert attempt.body
    assert attempt.body["tried"] == said["instruction"]


def test_no_text_of_any_proposal_stands_in_the_services() -> None:
    sources = "\n".join(path.read_text() for path in SERVICES.rglob("*.py"))
    for path in INCIDENTS:
        story = story_of(path)
        said = [story["override"]["instruction"], story["override"]["reasoning"], *story["override"]["constraints"]]
        for folder in story["knowledge"]:
            for document in knowledge_of(path, folder).rglob("*.md"):
                said += [line.strip() for line in document.read_text().splitlines() if len(line.split()) > 5]
        assert not [line for line in said if line in sources]


async def test_low_confidence_waits_for_the_right_document(meaning: ModelSimilarity) -> None:
    story = story_of(ORDERS)["unknown"]
    shelf = Shelf(meaning)
    shelf.ingest_folder(EXAMPLES / "knowledge", EXAMPLES)
    shelf.put("providers", "sftp", {"name": "sftp", "aliases": [], "package": "apache-airflow-providers-sftp"})
    developer = SimulatedDeveloper(shelf)

    before, commit = await developer.work("task-4", story["task"])
    assert (before.outcome, before.code) == ("stopped", "low_confidence")
    assert before.confidence
    assert before.confidence.score < 0.6
    assert {need.kind for need in before.needs} == {"document", "decision"}
    about = next(need.what for need in before.needs if need.kind == "document")
    assert about.startswith("a runbook, an architecture note or an example about ")
    assert before.searched_for
    assert not any("\n" in each for each in before.searched_for)
    assert not [write for write in commit.writes if write.store == "attempts"]

    shelf.ingest_file(knowledge_of(ORDERS, story["unrelated"]), EXAMPLES)
    still, commit = await developer.work("task-4", story["task"], purpose="reassess")
    assert (still.outcome, still.code) == ("stopped", "low_confidence")
    assert still.confidence
    assert still.confidence.band == "low"
    assert [write.body["kind"] for write in commit.writes if write.body] == ["search", "assess"]

    document = knowledge_of(ORDERS, story["document"])
    shelf.ingest_file(document, EXAMPLES, integrity=0)
    untrusted, _ = await developer.work("task-4", story["task"], purpose="reassess")
    assert untrusted.outcome == "stopped"

    shelf.ingest_file(document, EXAMPLES)
    after, _ = await developer.work("task-4", story["task"], purpose="reassess")
    assert after.outcome == "proposed"
    assert after.confidence
    assert after.confidence.score >= 0.6
    assert after.findings.citations[0].source_path == document.relative_to(EXAMPLES).as_posix()
    cited_spans_exist(shelf, after)


async def test_questions_of_the_examples_are_answered_or_honestly_not(meaning: ModelSimilarity) -> None:
    story = story_of(ORDERS)
    shelf = Shelf(meaning)
    shelf.ingest_folder(EXAMPLES / "knowledge", EXAMPLES)
    developer = SimulatedDeveloper(shelf)
    for number, question in enumerate(story["questions"]):
        worked, _ = await developer.work(f"question-{number}", {"kind": "question", "description": question["text"]})
        if question.get("answered", True):
            assert worked.outcome == "answered", question
            assert question["cites"] in {citation.source_path for citation in worked.findings.citations}
            cited_spans_exist(shelf, worked)
        else:
            assert (worked.outcome, worked.code) == ("stopped", "insufficient_evidence")
            assert worked.searched_for
            assert worked.needs
            assert worked.text is None


async def test_the_line_chains_the_actions_and_decisions_carry_their_basis(meaning: ModelSimilarity) -> None:
    shelf = Shelf(meaning)
    shelf.ingest_folder(EXAMPLES / "knowledge", EXAMPLES)
    worked, commit = await SimulatedDeveloper(shelf).work("task-1", FROM_EVENTS["failure"])
    actions = [Action.model_validate(write.body) for write in commit.writes if write.store == "actions"]
    assert [action.kind for action in actions] == ["search", "assess", "propose", "review"]
    assert [action.after for action in actions] == [
        ("before",),
        (actions[0].action_id,),
        (actions[1].action_id,),
        (actions[2].action_id,),
    ]
    assert worked.action_id == actions[-1].action_id
    decisions = [DecisionMade.model_validate(out.data) for out in commit.messages if out.type == DecisionMade.TYPE]
    assert [decision.agent for decision in decisions] == ["developer", "developer", "judge"]
    assert [each.parent_decision_id for each in decisions[1:]] == [each.decision_id for each in decisions[:-1]]
    assert all(decision.sources for decision in decisions)
    assert all(each.confidence and each.confidence.terms for each in decisions if each.agent == "developer")
    assert worked.artifact_sha256


async def test_sources_are_the_citations_of_the_result_and_not_all_results(meaning: ModelSimilarity) -> None:
    shelf = Shelf(meaning)
    shelf.ingest_folder(EXAMPLES / "knowledge", EXAMPLES)
    worked, commit = await SimulatedDeveloper(shelf).work("task-1", FROM_EVENTS["failure"])
    cited = {(each.store, each.id, each.version) for each in worked.findings.citations}
    named = [Action.model_validate(write.body).sources for write in commit.writes if write.store == "actions"]
    named += [DecisionMade.model_validate(out.data).sources for out in commit.messages if out.type == DecisionMade.TYPE]
    assert {(each.store, each.id, each.version) for sources in named for each in sources} == cited
    stopped, commit = await SimulatedDeveloper(shelf).work(
        "task-2", {"kind": "troubleshoot", "description": "The zeppelin of the mayor lost its anchor over the lake."}
    )
    refused, _ = await SimulatedDeveloper(shelf).work(
        "task-3", {"kind": "question", "description": "Which colour has the zeppelin of the mayor?"}
    )
    assert stopped.outcome == refused.outcome == "stopped"
    assert {each.role for each in (*stopped.findings.citations, *refused.findings.citations)} == {"candidate"}
    graded = [each for each in shelf.kept("actions").values() if each["task_id"] == "task-3"]
    assert len(graded) >= 3
    assert not any(each["sources"] for each in graded)
    made = [DecisionMade.model_validate(out.data) for out in commit.messages if out.type == DecisionMade.TYPE]
    assert not any(decision.sources for decision in made)


async def test_a_redelivery_comes_to_the_same_commit(meaning: ModelSimilarity) -> None:
    shelf = Shelf(meaning)
    shelf.ingest_folder(EXAMPLES / "knowledge", EXAMPLES)
    _, first = await SimulatedDeveloper(shelf).work("task-1", FROM_EVENTS["failure"])
    fresh = Shelf(meaning)
    fresh.ingest_folder(EXAMPLES / "knowledge", EXAMPLES)
    _, second = await SimulatedDeveloper(fresh).work("task-1", FROM_EVENTS["failure"])
    assert first == second


async def test_an_answer_from_an_untrusted_document_says_so(meaning: ModelSimilarity) -> None:
    shelf = Shelf(meaning)
    shelf.ingest_file(EXAMPLES / "knowledge" / "office-kitchen.md", EXAMPLES, integrity=0)
    question = {"kind": "question", "description": "When is the coffee machine descaled?"}
    worked, _ = await SimulatedDeveloper(shelf).work("task-1", question)
    assert worked.outcome == "answered"
    assert any("vouched" in caveat and "office-kitchen.md" in caveat for caveat in worked.findings.caveats)


@pytest.mark.parametrize(("by_kind", "sources"), [("person", [("actions", "action-1")]), ("agent", [])])
async def test_the_attempt_at_a_persons_instruction_names_the_override_alone(
    meaning: ModelSimilarity, by_kind: str, sources: list[tuple[str, str]]
) -> None:
    shelf = Shelf(meaning)
    shelf.ingest_folder(EXAMPLES / "knowledge", EXAMPLES)
    given = OverrideGiven(
        instruction="Wait.", reasoning="It passes.", by="ada", by_kind=by_kind, action_id="action-1",
        confidence_override=True,
    )  # fmt: skip
    developer = SimulatedDeveloper(shelf)
    worked, _ = await developer.work("task-1", FROM_EVENTS["failure"], override=given)
    assert worked.attempt_id
    made = shelf.one("attempts", worked.attempt_id).body
    assert made["tried"] == "Wait."
    assert [(each["store"], each["id"]) for each in made.get("sources", ())] == sources


async def test_an_override_that_is_not_on_record_yet_is_tried_later(meaning: ModelSimilarity) -> None:
    given = OverrideGiven(instruction="Wait.", reasoning="It passes.", by="ada", by_kind="person")
    task = SubmitTask.model_validate(FROM_EVENTS["failure"])
    message = TaskDelegated(
        task_id="t", project="shop", session_id="s", attempt=1, task=task, lane="investigate", override=given
    )
    with pytest.raises(Transient):
        await handle_in_steps(message, Shelf(meaning).delivered("message", "t"))
