"""Row D6: the judge compares a result with its task before it leaves, and sends it back at most once."""

from collections.abc import Sequence

import pytest
from agents.developer_meaning import Meaning
from agents.developer_memory import Shelf
from agents.steps import handle_in_steps
from agents.test_developer_attempts import HERE, tried
from agents.test_developer_stories import EXAMPLES

from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.evidence.gather import Evidence, gather
from counterpoint.developer.handlers import handle_delegated
from counterpoint.developer.policies.assessment import Assessment
from counterpoint.developer.policies.parts import question_parts
from counterpoint.developer.policies.results import AnswerResult, Conclusion
from counterpoint.developer.policies.review import contradiction, forbidden_act, review
from counterpoint.proto.decisions import Confidence, DecisionMade
from counterpoint.proto.findings import Citation, Findings, Objection
from counterpoint.proto.memory import Commit
from counterpoint.proto.overrides import TaskConstraint
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

ERROR = "duckdb.IOException: could not set lock on file /data/x.db"
FAILURE = SubmitTask(
    kind="troubleshoot", description="the report reads the file of the loader", error_message=ERROR, systems=("duckdb",)
)
RESTART, COPY = "Restart the loader.", "Let the report read a copy of the file."
FORBIDDEN = (TaskConstraint(text="do not restart the loader", by="ada", by_kind="person"),)

CONTRADICTED = [
    ("do not restart the loader", "Restart the loader."),
    ("Never drop the staging table", "1. Stop the run\n2. Drop the staging table."),
    ("the primary must not be rebooted", "Reboot the primary"),
    ("no reboot of the primary", "Reboot the primary."),
    ("Don't truncate dim_customer!", "Check the keys; truncate dim_customer."),
    ("avoid scaling down the workers", "scale down the workers"),
    ("Please do not touch prod", "Touch prod."),
    ("den Loader nicht neu starten", "Den Loader neu starten."),
]
NOT_CONTRADICTED = [
    ("do not restart the loader", "Do not restart the loader; wait for its end."),
    ("do not restart the loader", "Restart the report."),
    ("do not restart the loader", "Check the log after somebody has restarted the loader with a new configuration."),
    ("do not restart the loader on weekends", "Restart the loader."),
    ("do not restart the loader without asking me", "Restart the loader."),
    ("do not restart the loader until it is drained", "Restart the loader."),
    ("do not restart anything but the loader", "Restart the loader."),
    ("not only restart the loader", "Restart the loader."),
    ("do not forget to restart the loader", "Restart the loader."),
    ("restart the loader first", "Restart the loader."),
    ("only tonight", "Restart the loader."),
    ("never skip a test", "Run the tests."),
    ("no downtime", "Restart the loader."),
    ("den Loader nicht vor 20 Uhr neu starten", "Den Loader neu starten."),
]


def delegated(
    task: SubmitTask = FAILURE, objections: tuple[Objection, ...] = (), constraints: Sequence[TaskConstraint] = ()
) -> TaskDelegated:
    return TaskDelegated(
        task_id=HERE, project="shop", session_id="s", attempt=2, task=task, constraints=tuple(constraints),
        lane="answer" if task.kind == "question" else "investigate", objections=objections,
    )  # fmt: skip


def shelf_with(*fixes: str) -> Shelf:
    """A memory in which these acts, the newest first, have solved the failure."""
    shelf = Shelf()
    for number, fix in enumerate(reversed(fixes)):
        body = tried(fix, integrity=2, task=f"task-{number}").body
        earlier = {**body, "description": FAILURE.description, "error_message": ERROR, "systems": ["duckdb"]}
        shelf.put("attempts", f"a{number}", earlier, integrity=2)
    return shelf


async def handled(shelf: Shelf, message: TaskDelegated) -> tuple[TaskWorked, Commit]:
    commit = await handle_delegated(message, shelf.delivered("message", HERE))
    return TaskWorked.model_validate(commit.messages[-1].data), commit


def judged(commit: Commit) -> DecisionMade:
    decisions = [DecisionMade.model_validate(out.data) for out in commit.messages if out.type == DecisionMade.TYPE]
    return next(each for each in decisions if each.agent == "judge")


def stores(commit: Commit) -> list[str]:
    return [write.store for write in commit.writes]


@pytest.mark.parametrize(("constraint", "act"), CONTRADICTED)
def test_an_act_that_a_constraint_forbids_in_the_same_words_contradicts_it(constraint: str, act: str) -> None:
    assert contradiction(constraint, act)


@pytest.mark.parametrize(("constraint", "act"), NOT_CONTRADICTED)
def test_any_other_act_does_not(constraint: str, act: str) -> None:
    assert contradiction(constraint, act) is None


def test_a_constraint_without_a_prohibition_forbids_nothing() -> None:
    assert forbidden_act("drain the queue first") == frozenset()


async def test_a_forbidden_act_is_sent_back_and_left_out() -> None:
    first, commit = await handled(shelf_with(RESTART, COPY), delegated(constraints=FORBIDDEN))
    (objection,) = first.objections
    assert (objection.rule, objection.leave_out) == ("prohibition", RESTART)
    assert (judged(commit).decision_type, judged(commit).decision) == ("review", "send back")
    assert "attempts" not in stores(commit)
    note = next(write.body for write in commit.writes if write.store == "judge_memory")
    assert note is not None
    assert (note["rules"], note["sent_back"]) == (["prohibition"], True)
    second, commit = await handled(
        shelf_with(RESTART, COPY), delegated(objections=first.objections, constraints=FORBIDDEN)
    )
    assert second.outcome == "proposed"
    assert COPY in (second.text or "")
    assert judged(commit).decision == "pass"
    assert "attempts" in stores(commit)


async def test_without_another_act_a_forbidden_one_is_not_proposed() -> None:
    first, _ = await handled(shelf_with(RESTART), delegated(constraints=FORBIDDEN))
    second, _ = await handled(shelf_with(RESTART), delegated(objections=first.objections, constraints=FORBIDDEN))
    assert second.outcome == "stopped"
    assert RESTART not in (second.text or "")


async def test_a_result_without_objections_passes() -> None:
    worked, commit = await handled(shelf_with(RESTART), delegated())
    assert (worked.objections, judged(commit).decision) == ((), "pass")
    assert "judge_memory" not in stores(commit)


QUOTE = "orders-enrich is owned by Checkout and runs at 06:30 with 12 workers."


async def answer(text: str, question: str = "who owns orders-enrich", **more: object) -> tuple[Evidence, Conclusion]:
    shelf = Shelf()
    shelf.ingest("docs/ownership.md", QUOTE)
    message = delegated(SubmitTask.model_validate({"kind": "question", "description": question, **more}))
    evidence = await gather(shelf.delivered("m", HERE), message, load_calibration())
    citation = Citation(
        store="chunks", id="docs/ownership.md-0", version=1, source_path="docs/ownership.md", start=0, end=len(QUOTE),
        quote=QUOTE,
    )  # fmt: skip
    result = AnswerResult(text, "-", Findings(citations=(citation,)))
    assessment = Assessment(Confidence(score=0.9, band="high"), None, None, "-")
    return evidence, Conclusion(evidence, assessment, result)


async def objections_to(text: str, question: str = "who owns orders-enrich", **more: object) -> list[str]:
    _, conclusion = await answer(text, question, **more)
    message = delegated(SubmitTask.model_validate({"kind": "question", "description": question, **more}))
    made = review(message, conclusion)
    assert made is not None
    assert made.sent_back == any(each.search_for for each in made.objections)
    return [each.rule for each in made.objections]


async def test_a_changed_number_or_identifier_is_objected_to() -> None:
    assert await objections_to(f"{QUOTE} [1]") == []
    assert await objections_to("It runs at 06:30 with 14 workers [1].") == ["number"]
    assert await objections_to("orders-enrich-2 is owned by Checkout [1].") == ["number"]
    assert await objections_to("It needs 14 workers [1].", question="are 14 workers enough for orders-enrich") == []


async def test_a_part_of_a_question_without_an_answer_is_objected_to() -> None:
    question = "who owns orders-enrich and where are quarantined kafka messages stored?"
    assert await objections_to(f"{QUOTE} [1]", question=question) == ["part"]
    assert await objections_to(f"{QUOTE} [1]", question="who owns orders-enrich and when does orders-enrich run") == []


async def test_a_system_that_is_not_mentioned_is_a_caveat_only() -> None:
    assert await objections_to(f"{QUOTE} [1]", systems=("freeipa",)) == ["system"]
    assert await objections_to(f"{QUOTE} [1]", systems=("orders-enrich",)) == []


def test_parts_of_questions() -> None:
    assert question_parts("who owns etcd and where does its backup run?") == (
        "who owns etcd",
        "where does its backup run",
    )
    assert len(question_parts("Wer besitzt etcd? Und wo läuft die Sicherung?")) == 2
    assert question_parts("how do I drain and restart a broker") == ("how do I drain and restart a broker",)
    assert len(question_parts("can I use S3 and GCS at once?")) == 1


async def test_an_objection_is_searched_for() -> None:
    shelf, asked = Shelf(), list[tuple[str, ...]]()
    shelf.ingest("docs/ownership.md", QUOTE)
    objection = Objection(rule="part", reason="-", search_for=("where is it stored",))
    search = shelf.search

    async def noted(query: object, items: list[object]) -> object:
        asked.append(getattr(query, "also", ()))
        return await search(query, items)  # type: ignore[arg-type]

    shelf.search = noted  # type: ignore[assignment, method-assign]
    task = SubmitTask(kind="question", description="who owns orders-enrich")
    await handle_delegated(delegated(task, objections=(objection,)), shelf.delivered("message", HERE))
    assert any("where is it stored" in also for also in asked)


async def test_the_answer_to_a_missing_part_is_added() -> None:
    shelf = Shelf(Meaning())
    shelf.ingest_folder(EXAMPLES / "knowledge", EXAMPLES)
    first, second = "Who owns finance_daily", "when is the coffee machine descaled"
    objection = Objection(rule="part", reason="-", search_for=(second,))

    async def answered(question: str, *objections: Objection) -> TaskWorked:
        memory = shelf.delivered(question, HERE)
        task = SubmitTask(kind="question", description=question)
        commit = await handle_in_steps(delegated(task, objections=objections), memory)
        return TaskWorked.model_validate(next(out.data for out in commit.messages if out.type == TaskWorked.TYPE))

    alone = await answered(f"{second}?")
    assert alone.outcome == "answered"
    before, after = await answered(f"{first}?"), await answered(f"{first}?", objection)
    new = set(after.findings.citations) - set(before.findings.citations)
    assert new <= set(alone.findings.citations)
    assert new
    for citation in after.findings.citations:
        assert citation.quote in (after.text or "")
    assert f"[{len(after.findings.citations)}]" in (after.text or "")
