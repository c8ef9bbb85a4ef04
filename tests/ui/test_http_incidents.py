"""Open incidents, the decisions of a project and the card of a task over HTTP."""

import shlex
from datetime import timedelta
from typing import Any

import pytest
from agents.router_house import NOW, PROJECT
from ui.http_front import RunningFront, put_task

from counterpoint.card.prose import outdated
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.findings import OUTDATED_SOURCES
from counterpoint.proto.tasks import Task
from counterpoint.router.mcp.task_view import view

JOB = {"job": {"namespace": "prod", "name": "orders.fetch"}}


def downstream(kind: str, name: str, hops: int, owner: str | None = None, edge: str = "data") -> dict[str, Any]:
    return {"kind": kind, "namespace": "prod", "name": name, "hops": hops, "edge": edge, "owner": owner}


async def listed(front: RunningFront, **params: Any) -> Any:
    response = await front.me.get("/v1/incidents", params=params)
    assert response.status_code == 200, response.text
    return response.json()


async def test_open_incidents_are_sorted_by_severity_and_age(front: RunningFront) -> None:
    for hours, (task_id, state, priority) in enumerate(
        [
            ("low", "working", "low"),
            ("new", "working", "high"),
            ("old", "input_required", "high"),
            ("first", "submitted", "urgent"),
            ("over", "completed", "urgent"),
        ]
    ):
        put_task(front, task_id, state, priority=priority, submitted_at=NOW - timedelta(hours=hours))
    found = await listed(front)
    assert [one["task_id"] for one in found["items"]] == ["first", "old", "new", "low"]
    assert (found["total"], found["complete"]) == (4, True)
    shorter = await listed(front, limit=2)
    assert ([one["task_id"] for one in shorter["items"]], shorter["total"], shorter["complete"]) == (
        ["first", "old"],
        4,
        False,
    )


async def test_an_incident_says_how_often_it_failed_and_who_is_hit(front: RunningFront) -> None:
    rows = [
        downstream("job", "orders.clean", 1, "team-ingest"),
        downstream("job", "orders.clean", 1, "team-ingest", "control"),
        downstream("dataset", "orders.csv", 2, "team-sales"),
        downstream("dataset", "orders.parquet", 3),
    ]
    context = {
        "owner": "team-ingest",
        "repeats": {"count": 7},
        "affected_count": 3,
        "failed_at": "2026-03-02T02:00:00Z",
        "previous_incident": "incident-1",
    }
    findings = {"downstream": rows}
    put_task(
        front, "t1", "input_required", kind="troubleshoot", target=JOB, context=context, findings=findings,
        error_message="OSError: no space left", waiting_for="override",
        escalation={"to": "human", "code": "repeated_failure", "needs": []},
    )  # fmt: skip
    (one,) = (await listed(front))["items"]
    assert one["title"] == "orders.fetch failed: OSError: no space left"
    assert (one["count"], one["affected"], one["owner"], one["job"]) == (7, 3, "team-ingest", "prod/orders.fetch")
    assert one["hit"] == {"jobs": 1, "datasets": 2, "owners": ["team-ingest", "team-sales"]}
    assert (one["to"], one["code"], one["waiting_for"], one["previous"]) == (
        "human", "repeated_failure", "override", "incident-1",
    )  # fmt: skip


async def test_more_incidents_than_fit_into_one_reply_are_listed(front: RunningFront) -> None:
    for number in range(130):
        put_task(front, f"incident-{number}", "working", kind="troubleshoot")
        live = {"repeats": {"count": number + 1}} | ({"merged_into": "incident-0"} if number % 10 == 9 else {})
        front.house.put("incidents", f"incident-{number}", {"live": live})
    front.house.reply_limit = 7
    found = await listed(front, limit=1000)
    assert (found["total"], found["complete"]) == (117, True)
    assert {one["task_id"]: one["count"] for one in found["items"]}["incident-128"] == 129


@pytest.mark.parametrize(
    "context",
    [
        None,
        {"downstream": "x", "repeats": 3, "owner": 7},
        {"downstream": [{"kind": 1}, "x"], "repeats": {"count": "x"}},
    ],
)
async def test_facts_of_a_sender_are_not_trusted_to_have_a_form(front: RunningFront, context: Any) -> None:
    put_task(front, "t1", "working", context=context)
    (one,) = (await listed(front))["items"]
    assert (one["count"], one["hit"], one.get("owner")) == (1, {"jobs": 0, "datasets": 0, "owners": []}, None)


async def test_before_the_developer_looked_the_sender_says_who_is_hit(front: RunningFront) -> None:
    put_task(front, "t1", "working", context={"downstream": [downstream("job", "late", 1, "team-late")]})
    (one,) = (await listed(front))["items"]
    assert one["hit"] == {"jobs": 1, "datasets": 0, "owners": ["team-late"]}


async def test_a_principal_without_read_is_refused(front: RunningFront) -> None:
    put_task(front, "t1", "working")
    async with front.as_principal("ben", "submit") as ben:
        for path in ("/v1/incidents", "/v1/decisions", "/v1/tasks/t1/card"):
            assert (await ben.get(path)).status_code == 403
    async with front.as_principal("eve", "read", projects=("other",)) as eve:
        assert (await eve.get("/v1/incidents")).status_code == 403


async def test_decisions_are_listed_newest_first_with_their_position(front: RunningFront) -> None:
    for number in range(3):
        decided = DecisionMade(
            decision_id=f"d{number}", task_id="t1", project=PROJECT, agent="manager", decision_type="plan",
            decision=f"step {number}", reasoning="x", made_at=NOW,
        )  # fmt: skip
        front.house.put("decisions", f"d{number}", decided.model_dump(mode="json", exclude_none=True))
    first = (await front.me.get("/v1/decisions", params={"limit": 2})).json()
    assert [one["decision_id"] for one in first["items"]] == ["d2", "d1"]
    assert first["items"][0]["seq"] > first["items"][1]["seq"]
    rest = (await front.me.get("/v1/decisions", params={"cursor": first["next_cursor"]})).json()
    assert ([one["decision_id"] for one in rest["items"]], rest["next_cursor"]) == (["d0"], None)


async def test_the_card_has_the_sections_of_the_command_line(front: RunningFront) -> None:
    put_task(front, "t1", "working", kind="troubleshoot", error_message="OSError: disk full", target=JOB)
    card = (await front.me.get("/v1/tasks/t1/card")).json()
    assert card["title"] == "orders.fetch failed: OSError: disk full"
    assert {"failed", "error"} <= {each["label"] for each in card["sections"]}
    (error,) = [each for each in card["sections"] if each["label"] == "error"]
    assert (error["style"], error["lines"]) == ("code", ["OSError: disk full"])
    assert (await front.me.get("/v1/tasks/nothing/card")).status_code == 404


@pytest.mark.parametrize(
    ("stored", "warned"),
    [
        ({"text": "First close the valve.\nThen wait."}, False),
        ({"text": "First open the valve.\nThen wait."}, True),
        (None, True),
    ],
)
async def test_the_card_warns_of_a_quote_whose_source_was_changed_or_taken_back(
    front: RunningFront, stored: dict[str, str] | None, warned: bool
) -> None:
    quoted = {"store": "chunks", "id": "c1", "version": 9, "source_path": "valve.md", "start": 0, "end": 22}
    shown = {"store": "chunks", "id": "c2", "version": 9, "source_path": "other.md", "start": 0, "end": 4}
    citations = [quoted | {"quote": "First close the valve."}, shown | {"quote": "gone", "role": "candidate"}]
    put_task(
        front, "t1", "input_required", waiting_for="outcome", attempt=1, proposal="> First close the valve.",
        findings={"searched": [], "citations": citations}, context={"outdated_sources": ["a claim of the sender"]},
    )  # fmt: skip
    if stored is not None:
        front.house.put("chunks", "c1", stored)
    card = (await front.me.get("/v1/tasks/t1/card")).json()
    lines = [line for each in card["sections"] if each["label"] == "outdated" for line in each["lines"]]
    assert [line.partition(" ")[0] for line in lines[:1]] == (["valve.md"] if warned else [])
    note = '--note "not tried: its source was changed or taken back"'
    again = f"    counterpoint outcome t1 failed --attempt 1 {note} --project {PROJECT}"
    assert lines[1:] == (["to work on it again:", again] if warned else [])


async def test_an_answer_whose_source_was_taken_back_says_how_to_ask_again(front: RunningFront) -> None:
    quoted = {"store": "chunks", "id": "c1", "version": 9, "source_path": "valve.md", "start": 0, "end": 4}
    put_task(
        front, "t1", "completed", description="Which valve's first?", result="The red one.",
        findings={"searched": [], "citations": [quoted | {"quote": "red."}]},
    )  # fmt: skip
    task = Task.model_validate((await front.me.get("/v1/tasks/t1")).json())
    command = shlex.split(str(outdated(task).lines[-1]))
    assert command == ["counterpoint", "ask", "Which valve's first?", "--project", PROJECT]


def test_an_agent_is_told_to_report_a_proposal_whose_source_was_taken_back() -> None:
    body = {"task_id": "t1", "project": PROJECT, "kind": "troubleshoot", "state": "input_required", "attempt": 2}
    asked = {"waiting_for": "outcome", "proposal": "> red", "description": "x", "submitted_by": "me"}
    task = Task.model_validate(body | asked | {"submitted_at": NOW, "context": {OUTDATED_SOURCES: ["valve.md"]}})
    seen = view(task)
    assert "call log_attempt with the task_id, attempt 2 and the outcome failed" in seen.next
    assert [each.partition(" ")[0] for each in seen.caveats] == ["valve.md"]
