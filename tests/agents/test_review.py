"""The judge compares a result with its task before it leaves, and sends it back at most once."""

from collections.abc import Sequence

import pytest
from agents.developer_meaning import ModelSimilarity
from agents.developer_memory import Shelf
from agents.known_attempts import HERE, tried
from agents.steps import handle_in_steps
from agents.test_developer_stories import EXAMPLES

from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.evidence.gather import Evidence, gather
from counterpoint.developer.handlers import handle_delegated
from counterpoint.developer.policies import lanes
from counterpoint.developer.policies.assessment import Assessment
from counterpoint.developer.policies.parts import question_parts
from counterpoint.developer.policies.prohibitions import contradiction, forbidden_act
from counterpoint.developer.policies.results import AnswerResult, Conclusion, StopResult
from counterpoint.developer.policies.review import review
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
    ("never rebuild the filer index", "Delete the file 004217.ldb and rebuild the filer index with weed fix"),
    ("do not delete any ldb file", "Delete the file 004217.ldb and rebuild the filer index with weed fix"),
    ("do not restart the loader", "Restart the nightly loader on node 3 with systemctl."),
    ("do not restart the loader", "Run `systemctl restart loader`."),
    ("no deploy", "Deploy 4.2 again"),
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
    ("do not restart the loader", "Restart the loader's exporter."),
    ("do not restart the loader", "Restart the report that reads the file of the loader."),
    ("do not delete the loader", "Delete the file of the loader."),
    ("do not restart the loader", "Restart the exporter, not the loader."),
    ("do not restart the loader", "Instead of restarting the loader, copy the file."),
]

LATER_CONTRADICTED = [
    ("Never fail over the patroni cluster", "Fail over the patroni cluster to node b."),
    ("do not drop the replication slot", "Drop the stale replication slot standby2 and restart the standby."),
    ("No manual failover", "Do a manual failover of the cluster."),
    ("don't purge the queue", "Stop the consumers, then purge the queue invoices."),
    ("the schema registry must not be restarted", "Restart the schema registry on both hosts."),
    ("Please never edit the crontab by hand", "Edit the crontab by hand and remove line 4."),
    ("do not increase the heap", "Increase the heap to 8 GB."),
    ("avoid compaction", "Run a compaction of the table."),
    ("do not scale the deployment", "kubectl: `kubectl scale deployment web --replicas=3`"),
    ("You must not revoke the certificate", "Revoke the certificate of the old gateway, then issue a new one."),
    ("no schema changes", "Change the schema: add the column."),
    ("do not kill the backup job", "Kill the backup job that hangs."),
    ("do not change the password of svc_etl", "Set a new password, i.e. change the password of svc_etl in FreeIPA."),
    ("Keine Neustarts der Datenbank", "Neustart der Datenbank."),
    ("never flush the cache in production", "Flush the production cache."),
    ("do not disable the firewall", "Check DNS first. Disable the firewall for the test."),
    ("do not reprocess yesterday's partition", "Reprocess the partition of yesterday."),
    ("never touch /etc/resolv.conf", "Correct /etc/resolv.conf."),
]
LATER_NOT_CONTRADICTED = [
    ("Never fail over the patroni cluster", "Restart the patroni agent on node b."),
    ("do not drop the replication slot", "Check the lag of the replication slot before you drop the table."),
    ("don't purge the queue", "Purge the cache, then restart the consumer of the queue."),
    ("the schema registry must not be restarted", "Restart the worker that uses the schema registry."),
    ("do not increase the heap", "Decrease the heap of the other service."),
    ("do not increase the heap", "Increase the timeout; the heap is fine."),
    ("do not scale the deployment", "Edit the deployment so that it has a memory limit."),
    ("You must not revoke the certificate", "Renew the certificate; the old one was revoked last week."),
    ("no schema changes", "Check whether the schema has changed."),
    ("do not kill the backup job", "Wait for the backup job, it is killed after 2 hours anyway."),
    ("do not disable the firewall", "Enable the firewall rule for port 53."),
    ("do not disable the firewall", "Disable the second firewall rule's logging."),
    ("never flush the cache in production", "Flush the DNS cache of the staging host."),
    ("do not reprocess yesterday's partition", "Reprocess the partition of today."),
    ("do not run it twice", "Run it once more after the lock is gone."),
    ("never use the root account", "Use the account svc_etl."),
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
    assert forbidden_act("drain the queue first") is None


def test_prohibitions_written_after_the_rule_are_recognised_without_a_false_alarm() -> None:
    recognised = [pair for pair in LATER_CONTRADICTED if contradiction(*pair)]
    assert (len(recognised), len(LATER_CONTRADICTED)) == (13, 18)
    assert [pair for pair in LATER_NOT_CONTRADICTED if contradiction(*pair)] == []


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
    assert f"an act was left out: {first.objections[0].reason}" in second.findings.caveats


@pytest.mark.parametrize("forbidden", [True, False])
async def test_a_stop_offers_no_act_that_a_constraint_forbids(forbidden: bool) -> None:
    message = delegated(constraints=FORBIDDEN if forbidden else ())
    evidence = await gather(shelf_with(RESTART).delivered("message", HERE), message, load_calibration())
    stop = lanes._low_confidence(message, evidence, Assessment(Confidence(score=0.3, band="low"), None, None, "-"))
    assert isinstance(stop, StopResult)
    assert (RESTART in (stop.text or "")) is not forbidden


@pytest.mark.parametrize("purpose", ["work", "reassess"])
async def test_the_second_result_is_no_other_act_that_a_constraint_forbids(purpose: str) -> None:
    constraints = (*FORBIDDEN, TaskConstraint(text="never copy the file", by="eve", by_kind="person"))
    shelf = shelf_with(RESTART, "Copy the file for the report.", "Ask the owner of the report for a later start.")
    objection = Objection(rule="prohibition", reason="-", leave_out=RESTART)
    objections = (objection,) if purpose == "work" else ()
    message = delegated(objections=objections, constraints=constraints).model_copy(update={"purpose": purpose})
    worked, _ = await handled(shelf, message)
    assert worked.outcome == "proposed"
    assert "> Ask the owner" in (worked.text or "")


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
    shelf = Shelf(ModelSimilarity())
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
