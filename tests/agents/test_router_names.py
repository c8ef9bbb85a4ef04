"""Secrets in the names of tasks, sources and fields: gone before a task is routed, and no reason to refuse it."""

from agents.router_house import NOW, PROJECT, House

from counterpoint.bus.codec import Inbound
from counterpoint.proto.attempts import ReportOutcome, TaskOutcomeReported
from counterpoint.proto.errors import Permanent
from counterpoint.proto.tasks import SubmitTask, TaskRejected, TaskRouted, TaskSubmitted
from counterpoint.router.handlers import rejected

KEY = "AKIA" + "Z7QF3MPLKD2WXYTB"
TOKEN = "ghp_" + "016C7hXz3mR9tQ2wYbLkD8vNcJ5sFpA4eG1u"
BODY = {"kind": "troubleshoot", "description": "The import fails"}
TARGET = {
    "repo": f"https://robot:{TOKEN}@git.internal/etl.git",
    "job": {"namespace": "etl", "name": f"orders.{KEY}"},
    "run_id": KEY,
}


async def test_secrets_in_names_of_a_task_are_removed_before_routing() -> None:
    house = House()
    body = BODY | {"task_id": "t1", "target": TARGET, "source_ref": f"https://ci/log?token={TOKEN}&job=1", KEY: "x"}
    assert await house.deliver(SubmitTask, body, event=(f"/ci/{KEY}", "42")) == "done"
    (routed,), (submitted,) = house.of_type(TaskRouted), house.of_type(TaskSubmitted)
    target = routed.task.target
    assert target is not None
    assert target.repo == "https://git.internal/etl.git"
    assert target.job is not None
    assert target.job.name == f"orders.{target.run_id}"
    assert (target.run_id or "").startswith("[redacted:aws_access_key:")
    assert routed.task.source_ref == "https://ci/log?job=1"
    assert routed.submitted_by == submitted.submitted_by == f"/ci/{target.run_id}"
    assert submitted.ignored == ("(1 more, not named: what looks like a secret is in the name)",)


async def test_the_same_task_is_the_same_and_another_secret_is_another() -> None:
    house = House()
    body = BODY | {"task_id": "t1", "target": TARGET}
    for sequence in (1, 2):
        assert await house.deliver(SubmitTask, body, sequence=sequence) == "done"
    assert len(house.of_type(TaskRouted)) == 1
    other = body | {"target": TARGET | {"run_id": KEY[:-1] + "A"}}
    assert await house.deliver(SubmitTask, other, sequence=3) == "conflict"


async def test_a_source_with_a_secret_may_report() -> None:
    house = House()
    assert await house.deliver(SubmitTask, BODY | {"task_id": "t1"}) == "done"
    report = {"task_id": "t1", "outcome": "succeeded"}
    assert await house.deliver(ReportOutcome, report, sequence=2, event=(KEY, "43")) == "done"
    (reported,) = house.of_type(TaskOutcomeReported)
    assert reported.by.startswith("[redacted:aws_access_key:")


def test_a_rejection_does_not_name_a_task_by_a_secret() -> None:
    body = {"task_id": KEY}
    inbound = Inbound(id="m", type="", project=PROJECT, subject="s", body=body, time=NOW, trusted=False)
    (outgoing,) = rejected(inbound, Permanent("invalid"))
    assert outgoing.task_id is None
    assert TaskRejected.model_validate(outgoing.data).task_id is None
