"""Triggers that take a task to the calling LLM although its work could go on."""

from typing import Any

import pytest
from agents.approval_house import ASKING
from agents.manager_house import House
from agents.test_manager_settings import house as in_settings

from counterpoint.manager.triggers import asks_take_over, contradicts, only_asks_take_over, wide_scope
from counterpoint.proto.tasks import Target, Task, TaskDelegated, TaskEscalated

SAID = [
    "take over",
    "Please take over.",
    "The retries do not help. Take over, please.",
    "Claude, take over from here",
    "can you take this over?",
    "I have to leave, so please take it over now",
    "you should take over the incident",
    "stop this and take over",
    "Take over and restart it by hand",
    "bitte übernehmen",
    "Übernimm das, ich bin raus",
]
NOT_SAID = [
    "the standby takes over at 6",
    "the replica failed to take over",
    "take over the leadership from node 2",
    "do not take over yet",
    "The new owner took over the DAG last week",
    "it is not clear when the night shift will take over",
    "the takeover of the lease timed out",
    "nobody could take over the lock",
    "Das neue Team übernimmt die Pipeline",
    "take overnight snapshots",
    "until the secondary is able to take over",
]
# Written after the rule, and not used to change it.
SAID_UNSEEN = [
    "ok then, take over",
    "This is the third failure; take over now!",
    "we are stuck - take over",
    "Could you take over here, I am on call for something else?",
    "no more retries please, you take over",
    "ops: please take over the case",
    "Take it over.",
    "The runbook is wrong, so take over with your own plan",
    "kannst du bitte übernehmen",
    "Du übernimmst",
]
NOT_SAID_UNSEEN = [
    "failover: the second broker did not take over",
    "who can take over the on-call duty in May?",
    "The job should take over 30 minutes but ends after two",
    "loads take over an hour since Monday",
    "the backup controller takes over and the primary is fenced",
    "if the leader dies, a follower must take over the partition",
    "Taking over the configuration of staging broke prod",
    "patroni could not take over the lock in etcd",
    "Die Werte übernimmt der Nachtlauf",
    "we take over the orders of the partner every night",
]

WIDE = [
    "Rename the column in all DAGs that read raw.orders",
    "Move every pipeline to the new secrets backend",
    "Change the retention across teams",
    "two DAGs of different owners have to share one sensor",
    "alle Pipelines auf den neuen Operator umstellen",
    "Introduce one convention for both workflows",
]
NARROW = [
    "Add a retry to orders_ingest",
    "Write a DAG that loads the file every day",
    "Change one of the DAGs: orders_ingest",
    "Read all partitions in the DAG",
    "load each table of the project",
    "der DAG soll alle Dateien lesen",
]
WIDE_UNSEEN = [
    "Replace the deprecated operator in several DAGs",
    "Roll out the new alerting to all teams",
    "refactor the 14 dags under dags/finance to TaskFlow",
    "The change concerns multiple owners",
    "mehrere DAGs sollen den neuen Pool benutzen",
    "Bump the provider across our pipelines",
]
NARROW_UNSEEN = [
    "Add an SLA to the finance_daily DAG",
    "the DAG should wait for all files",
    "write one pipeline that copies three tables",
    "Fix the import error in dags/orders.py",
    "make the pipeline idempotent for every run",
    "eine Pipeline für den Export schreiben",
]

CONTRADICTING = [
    ("Raise the pool to 40 slots", "Lower the pool to 10 slots"),
    ("Enable depends_on_past", "Disable depends_on_past"),
    ("Restart the loader", "Do not restart the loader"),
    ("Scale up the workers", "Scale down the workers"),
    ("Grant the role to batch_user", "Revoke the role from batch_user"),
    ("Upgrade pandas to 2.1", "Downgrade pandas to 1.5"),
]
NOT_CONTRADICTING = [
    ("Raise the pool to 40 slots", "Raise the pool to 60 slots"),
    ("Restart the loader", "Restart the report"),
    ("Enable depends_on_past", "Disable catchup"),
    ("Start", "Stop"),
    ("Stop the loader and start the report", "Start the loader and stop the report"),
    ("Add a retry", "Remove the sensor"),
    ("Restart the loader", "Restart the loader"),
]


@pytest.mark.parametrize("text", [*SAID, *SAID_UNSEEN])
def test_take_over_is_asked(text: str) -> None:
    assert asks_take_over(text)


@pytest.mark.parametrize("text", [*NOT_SAID, *NOT_SAID_UNSEEN])
def test_take_over_is_not_asked(text: str) -> None:
    assert not asks_take_over(text)


@pytest.mark.parametrize(("instruction", "only"), [
    ("take over", True), ("Please take over now.", True), ("Take over and restart it by hand", False),
    ("restart it", False), ("take over the task", True),
])  # fmt: skip
def test_an_instruction_may_be_nothing_but_that(instruction: str, only: bool) -> None:
    assert only_asks_take_over(instruction) == only


def develop(description: str, *paths: str, kind: str = "develop") -> Task:
    return Task.model_validate(
        {"task_id": "t1", "project": "p", "kind": kind, "state": "working", "description": description,
         "submitted_by": "ops", "submitted_at": "2026-03-02T03:00:00Z",
         "target": Target(paths=paths).model_dump() if paths else None}
    )  # fmt: skip


@pytest.mark.parametrize("text", [*WIDE, *WIDE_UNSEEN])
def test_a_change_over_several_dags_or_owners_is_wide(text: str) -> None:
    assert wide_scope(develop(text))


@pytest.mark.parametrize("text", [*NARROW, *NARROW_UNSEEN])
def test_any_other_change_is_not(text: str) -> None:
    assert wide_scope(develop(text)) is None


def test_the_files_of_a_change_count_and_a_failure_is_no_change() -> None:
    assert wide_scope(develop("Rename it", "dags/a.py", "dags/b.py")) == "2 DAGs"
    assert wide_scope(develop("Rename it", "dags/a.py", "tests/a.py", "dags/README.md")) is None
    assert wide_scope(develop("all DAGs fail since noon", kind="troubleshoot")) is None


@pytest.mark.parametrize(("first", "second"), CONTRADICTING)
def test_opposite_acts_contradict_each_other(first: str, second: str) -> None:
    assert contradicts(first, second)
    assert contradicts(second, first)


@pytest.mark.parametrize(("first", "second"), NOT_CONTRADICTING)
def test_other_acts_do_not_contradict_each_other(first: str, second: str) -> None:
    assert not contradicts(first, second)


def escalated(house: House) -> tuple[str, str]:
    task, message = house.task(), house.last(TaskEscalated)
    assert (task.state, task.waiting_for) == ("input_required", "override")
    assert message.needs[0].how
    return message.to, message.code


def test_a_task_that_asks_for_it_is_not_offered_a_proposal() -> None:
    house = House()
    house.route(description="The load fails again. Please take over.")
    house.developer("proposed")
    assert escalated(house) == ("calling_llm", "take_over")
    assert house.attempt(1).shadow
    assert "TaskProposed" not in house.names()
    house.override(instruction="unlock the table")
    house.developer("proposed")
    assert house.task().waiting_for == "outcome"


def test_a_proposal_that_needs_an_approval_is_held_and_not_shown() -> None:
    house = House(approvals=ASKING)
    house.route(description="The load fails again. Please take over.")
    house.developer("proposed")
    assert (house.task().waiting_for, house.task().proposal) == ("approval", None)


def test_in_shadow_nothing_is_shown() -> None:
    house = in_settings(asked={"description": "The load fails again. Please take over."}, shadow=True)
    house.developer("proposed")
    assert escalated(house) == ("calling_llm", "take_over")
    task = house.task()
    assert (task.proposal, task.findings and task.findings.citations) == (None, ())


def test_a_failure_whose_note_asks_for_it_is_not_tried_again() -> None:
    house = House()
    house.route()
    house.developer("proposed")
    house.outcome("failed", error_message="e", note="worse than before, take over please")
    assert escalated(house) == ("calling_llm", "take_over")
    assert house.attempt(1).outcome == "failed"


@pytest.mark.parametrize("state", ["working", "outcome", "documents"])
def test_an_override_that_says_nothing_else_stops_the_work(state: str) -> None:
    house = House()
    house.route()
    if state == "outcome":
        house.developer("proposed")
    elif state == "documents":
        house.developer("stopped", 0.3, code="low_confidence")
    house.override(instruction="take over", constraints=("no downtime",))
    assert escalated(house) == ("calling_llm", "take_over")
    assert [each.text for each in house.task().constraints] == ["no downtime"]
    assert not house.work_under_way()


@pytest.mark.parametrize(("score", "waiting_for"), [(0.7, "override"), (0.5, "outcome")])
def test_confident_attempts_that_contradict_each_other_are_a_deadlock(score: float, waiting_for: str) -> None:
    house = House()
    house.route(error_message="Error: queue is full")
    confident: Any = {"confidence_of_attempt": score}
    house.developer("proposed", score, text="Raise the pool to 40 slots", **confident)
    house.outcome("failed", error_message="Error: out of memory")
    house.developer("proposed", score, text="Lower the pool to 10 slots", **confident)
    assert house.task().waiting_for == waiting_for
    if waiting_for == "override":
        assert escalated(house) == ("calling_llm", "confidence_deadlock")
        assert house.attempt(2).shadow


@pytest.mark.parametrize(
    ("score", "alternative", "waiting_for"),
    [
        (0.61, "Lower the pool to 10 slots", "override"),
        (0.6, "Lower the pool to 10 slots", "outcome"),
        (0.61, "Restart the pool", "outcome"),
    ],
)
def test_a_model_that_contradicts_the_rules_is_a_deadlock(score: float, alternative: str, waiting_for: str) -> None:
    house = House()
    house.route(error_message="Error: queue is full")
    confident: Any = {"confidence_of_attempt": score}
    house.developer("proposed", score, text="Raise the pool to 40 slots", alternative=alternative, **confident)
    assert house.task().waiting_for == waiting_for
    if waiting_for == "override":
        assert escalated(house) == ("calling_llm", "confidence_deadlock")
        escalation = house.task().escalation
        assert escalation is not None
        assert (
            "“Raise the pool to 40 slots”, the rules propose “Lower the pool to 10 slots”" in escalation.needs[0].what
        )
        assert house.attempt(1).shadow


def test_code_over_several_dags_is_a_matter_of_architecture() -> None:
    house = House()
    house.route(kind="develop", description="Rename the column in all DAGs")
    house.developer("stopped", 0.7, code="no_model")
    assert escalated(house) == ("calling_llm", "architecture_scope")
    other = House()
    other.route(kind="develop", description="Rename the column in orders_ingest")
    other.developer("stopped", 0.7, code="no_model")
    assert other.last(TaskEscalated).code == "no_model"


def test_an_override_is_a_decision_that_was_made() -> None:
    house = House()
    house.route(kind="develop", description="Rename the column in all DAGs")
    house.override(instruction="begin with orders_ingest")
    house.developer("stopped", 0.7, code="no_model")
    assert house.last(TaskEscalated).code == "no_model"
    assert house.last(TaskDelegated).attempt == 2
