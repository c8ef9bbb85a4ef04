"""From OpenLineage events to incident tasks and their observed outcomes, on real event files."""

import copy
import itertools
import random
from datetime import timedelta
from typing import Any

import pytest
from agents.lineage_data import event_sets, orders
from agents.lineage_house import NOW, House

from counterpoint.client import record
from counterpoint.graph.edges import LineageEdge
from counterpoint.graph.lineage import blast_radius_of, lineage_of
from counterpoint.graph.radius import Direction, blast_radius, lineage
from counterpoint.lineage.graph_records import changed_records, owners_by_ref
from counterpoint.lineage.incidents.deferred_failure import deferred_event
from counterpoint.lineage.incidents.failures import failure_report
from counterpoint.lineage.incidents.incident import LEDGER_ID, IncidentLedger, IncidentLimits, IncidentState
from counterpoint.lineage.openlineage.events import RunEvent
from counterpoint.lineage.openlineage.parser import parse_event
from counterpoint.lineage.records import JobRecord, RunRecord
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Permanent
from counterpoint.proto.findings import Downstream
from counterpoint.proto.lineage import LineageEvent

MONDAY, TUESDAY, FIXED, WEDNESDAY = "1_monday_ok", "2_tuesday_fails", "3_tuesday_fixed", "4_wednesday_fails_again"
FETCH = "job:prod/orders_ingest.fetch_orders"
LATER_S = 100_000.0


def fails(day: str) -> list[dict[str, Any]]:
    return [raw for raw in orders(day) if raw["eventType"] == "FAIL"]


def failing(error: str, *, job: str = "load", run_id: str = "r-1", second: int = 0) -> dict[str, Any]:
    return {
        "eventTime": (NOW + timedelta(seconds=second)).isoformat(),
        "eventType": "FAIL",
        "run": {"runId": run_id, "facets": {"errorMessage": {"message": error}}},
        "job": {"namespace": "ns", "name": job},
    }


# one incident, one task


async def test_tuesdays_four_failures_are_one_task_at_once_and_none_more_when_the_grace_is_over() -> None:
    house = House()
    await house.take(orders(MONDAY))
    assert (house.tasks, house.incidents) == ([], [])
    await house.take(orders(TUESDAY))
    (task,), (incident,) = house.tasks, house.incidents
    assert house.now == NOW
    assert (incident.job, incident.state, incident.tries, len(incident.failures)) == (FETCH, IncidentState.OPEN, 3, 4)
    assert len(house.timers) == 2
    await house.wait(LATER_S)
    assert (house.tasks, house.incidents, house.timers) == ([task], [incident], [])


async def test_the_task_has_job_run_error_and_history() -> None:
    house = House()
    await house.take([*orders(MONDAY), *orders(TUESDAY)])
    (task,), (incident,) = house.tasks, house.incidents
    assert (task.task_id, task.kind) == (incident.incident_id, "troubleshoot")
    assert task.error_message is not None
    assert task.error_message.startswith("ConnectionError: could not resolve ldap.internal")
    assert task.target is not None
    assert task.target.job is not None
    assert (task.target.job.namespace, task.target.job.name) == ("prod", "orders_ingest.fetch_orders")
    context = task.context or {}
    assert (context["tries"], context["owner"]) == (3, "team-ingest")
    assert context["error_signature"] == incident.signature
    assert context["log_url"].endswith("try_number=3")
    assert "Traceback" in context["stack_trace"]
    rows = [Downstream.model_validate(row) for row in context["downstream"]]
    assert [(row.name, row.owner) for row in rows if row.kind == "job" and row.edge == "data"] == [
        ("orders_ingest.clean_orders", "team-ingest"),
        ("finance_daily.daily_revenue", "team-finance"),
        ("inventory_sync.stock_levels", "team-inventory"),
    ]
    (opened, _) = [message for message in house.sent if isinstance(message, DecisionMade)]
    assert (opened.agent, opened.decision, opened.task_id) == ("lineage", "opened", incident.incident_id)


async def test_the_fixed_run_closes_the_incident_as_observed_and_wednesday_is_a_new_one() -> None:
    house = House()
    await house.take([*orders(MONDAY), *orders(TUESDAY), *orders(FIXED)])
    (tuesday,) = house.incidents
    assert tuesday.state is IncidentState.CLOSED
    (outcome,) = house.outcomes
    assert (outcome.task_id, outcome.outcome, outcome.attempt) == (tuesday.incident_id, "succeeded", None)
    await house.take(orders(WEDNESDAY))
    _, wednesday = house.incidents
    assert [task.task_id for task in house.tasks] == [tuesday.incident_id, wednesday.incident_id]
    assert (wednesday.state, wednesday.signature) == (IncidentState.OPEN, tuesday.signature)
    await house.wait(LATER_S)
    assert (len(house.tasks), len(house.outcomes), len(house.incidents)) == (2, 1, 2)


async def test_every_order_of_the_failures_is_one_task() -> None:
    for order in itertools.permutations(fails(TUESDAY)):
        house = House()
        await house.take(order)
        await house.wait(LATER_S)
        (task,), (incident,) = house.tasks, house.incidents
        assert (task.task_id, incident.job, len(incident.failures)) == (incident.incident_id, FETCH, 4)


@pytest.mark.parametrize("seed", range(5))
async def test_failures_taken_at_the_same_time_are_one_task(seed: int) -> None:
    house = House(limits=IncidentLimits(incidents_per_hour=20, retry_grace_s=0))
    events = [*orders(TUESDAY), *fails(TUESDAY)]
    random.Random(seed).shuffle(events)
    await house.take_at_once(events)
    assert house.conflicts
    await house.wait(LATER_S)
    (task,), (incident,) = house.tasks, house.incidents
    assert (task.task_id, len(incident.failures)) == (incident.incident_id, 4)


async def test_a_failure_and_the_success_after_it_at_the_same_time_leave_nothing_open() -> None:
    for seed in range(5):
        house = House()
        events = [*fails(TUESDAY), *(raw for raw in orders(FIXED) if raw["eventType"] == "COMPLETE")]
        random.Random(seed).shuffle(events)
        await house.take_at_once(events)
        await house.wait(LATER_S)
        assert {incident.state for incident in house.incidents} <= {IncidentState.CLOSED}
        assert [o.task_id for o in house.outcomes] == [task.task_id for task in house.tasks]


async def test_a_try_that_nothing_follows_becomes_a_task_when_the_grace_is_over() -> None:
    house = House()
    await house.take(orders(TUESDAY)[:2])
    assert house.tasks == []
    await house.wait(899)
    assert house.tasks == []
    await house.wait(1)
    (task,), (incident,) = house.tasks, house.incidents
    assert incident.tries == 1
    assert task.context is not None
    assert task.context["log_url"].endswith("try_number=1")


async def test_a_try_whose_retry_works_is_no_incident() -> None:
    again = copy.deepcopy(orders(TUESDAY)[2:4])
    again[1]["eventType"] = "COMPLETE"
    house = House()
    await house.take([*orders(TUESDAY)[:2], *again])
    await house.wait(LATER_S)
    assert (house.tasks, [i.state for i in house.incidents]) == ([], [IncidentState.CLOSED])


async def test_a_success_between_reading_and_writing_is_seen_by_the_failure_that_has_waited() -> None:
    house = House()
    await house.take(orders(TUESDAY)[:2])
    (worked,) = [raw for raw in orders(FIXED) if raw["run"]["runId"] == orders(TUESDAY)[1]["run"]["runId"]][1:]
    house.before_commit = lambda: house.take([worked])
    await house.wait(LATER_S)
    assert house.conflicts == 1
    assert (house.tasks, [i.state for i in house.incidents]) == ([], [IncidentState.CLOSED])


async def test_repeated_events_change_nothing() -> None:
    house = House()
    await house.take([*orders(MONDAY), *orders(TUESDAY), *orders(FIXED)])
    before, sent = dict(house.records), list(house.sent)
    await house.take([*orders(FIXED), *orders(TUESDAY), *orders(MONDAY)])
    await house.wait(LATER_S)
    assert house.sent == sent
    assert house.records == before


async def test_a_redelivered_event_is_applied_once() -> None:
    house = House()
    for raw in orders(TUESDAY):
        message = LineageEvent(event=raw)
        for _ in range(3):
            await house.deliver(message, message_id=f"m-{raw['eventTime']}")
    assert len(house.tasks) == len(house.incidents) == 1
    assert len(house.timers) == 2


async def test_a_same_failure_of_a_later_run_joins_while_it_is_open() -> None:
    house = House()
    await house.take([failing("disk full"), failing("disk full", run_id="r-2", second=9)])
    (incident,) = house.incidents
    assert (len(house.tasks), incident.count) == (1, 2)
    await house.take([failing("no such table", run_id="r-3", second=20), failing("disk full", job="b", run_id="r-4")])
    assert len(house.tasks) == 3


async def test_the_cap_holds_back_and_says_so() -> None:
    house = House(limits=IncidentLimits(incidents_per_hour=2, retry_grace_s=0))
    await house.take(failing("disk full", job=f"j{at}", run_id=f"r-{at}", second=at) for at in range(4))
    assert len(house.tasks) == 2
    assert [i.state for i in house.incidents] == [
        IncidentState.OPEN,
        IncidentState.OPEN,
        IncidentState.CAPPED,
        IncidentState.CAPPED,
    ]
    said = [message for message in house.sent if isinstance(message, DecisionMade)]
    assert [message.decision for message in said] == ["opened", "opened", "capped", "capped"]
    assert len(record(house.one("incidents", LEDGER_ID), IncidentLedger).capped) == 2
    recovered = failing("", job="j3", run_id="r-3", second=50) | {"eventType": "COMPLETE"}
    await house.take([recovered])
    assert house.outcomes == []
    await house.wait(3601)
    await house.take([failing("disk full", job="j2", run_id="r-9", second=3700)])
    (held,) = [incident for incident in house.incidents if incident.job == "job:ns/j2"]
    assert [task.task_id for task in house.tasks[2:]] == [held.incident_id]


# what an event is told by


@pytest.mark.parametrize("day", [TUESDAY, WEDNESDAY])
async def test_an_event_sent_once_more_tells_the_same_failure(day: str) -> None:
    house = House()
    await house.take(orders(day))
    for raw in fails(day):
        event, again = parse_event(raw), parse_event(deferred_event(parse_event(raw)).event)  # type: ignore[arg-type]
        assert isinstance(event, RunEvent)
        assert isinstance(again, RunEvent)
        run = record(house.one("runs", event.run_id), RunRecord)
        assert failure_report(again, run) == failure_report(event, run)
        assert again.error == event.error


async def test_no_secret_of_an_error_or_a_name_is_kept_or_sent() -> None:
    secret = "postgres://etl:Xk29sLq84mZpT7@db.internal/orders"
    raw = failing(f"OperationalError: could not connect to {secret}", job="a")
    raw["run"]["facets"]["errorMessage"]["stackTrace"] = f"Traceback (most recent call last):\n  connect('{secret}')"
    raw["run"]["facets"]["airflow"] = {"task": {"retries": 1}, "taskInstance": {"try_number": 1}}
    raw["job"]["facets"] = {
        "sourceCodeLocation": {"type": "git", "url": "https://ci:ghp_0123456789abcdefABCDEF0123456789abcd@git.local/x"}
    }
    raw["outputs"] = [{"namespace": "db", "name": "t"}]
    reader = {
        "eventTime": NOW.isoformat(),
        "job": {"namespace": "ns", "name": f"copy {secret}"},
        "inputs": [{"namespace": "db", "name": "t"}],
    }
    house = House()
    await house.take([reader, raw])
    assert "Xk29sLq84mZpT7" not in repr(house.timers)
    await house.wait(LATER_S)
    (task,) = house.tasks
    assert "[redacted:" in (task.error_message or "")
    assert "[redacted:" in record(house.one("runs", "r-1"), RunRecord).error_message  # type: ignore[operator]
    assert "Xk29sLq84mZpT7" not in task.model_dump_json()
    assert "ghp_" not in task.model_dump_json()
    assert all("Xk29sLq84mZpT7" not in repr(item.body) for item in house.items("runs") + house.items("incidents"))


async def test_an_event_that_is_unusable_or_of_our_own_namespace_is_refused_with_the_field() -> None:
    raw = failing("x")
    for wrong, at in (
        (raw | {"job": {"namespace": "counterpoint", "name": "t.developer"}}, "job.namespace"),
        (raw | {"eventTime": "soon"}, "eventTime"),
    ):
        with pytest.raises(Permanent) as refused:
            await House().take([wrong])
        assert [problem.field for problem in refused.value.problems] == [at]


# the graph


@pytest.mark.parametrize("name", event_sets())
async def test_memory_answers_as_the_whole_graph_would(name: str) -> None:
    house = House()
    raws = event_sets()[name]
    await house.take(raws)
    known: dict[Any, Any] = {}
    for raw in raws:
        known |= changed_records(parse_event(raw), known)
    edges = [each for each in known.values() if isinstance(each, LineageEdge)]
    assert {record(item, LineageEdge) for item in house.items("edges")} == set(edges)
    memory = house.memory()
    ends = sorted({end for each in edges for end in each.ends}, key=lambda node: node.ref)
    for node in ends[:25]:
        assert await blast_radius_of(memory, node) == blast_radius(node, edges, owners_by_ref(known.values())), node
        for way in Direction:
            whole = lineage(node, edges, owners_by_ref(known.values()), depth=2, direction=way)
            found = await lineage_of(memory, node, depth=2, direction=way)
            assert found.nodes == whole.nodes, (node, way)
            assert set(found.edges) == set(whole.edges), (node, way)


async def test_a_first_event_that_fails_has_its_outputs_downstream() -> None:
    house = House()
    reader = {
        "eventTime": NOW.isoformat(),
        "job": {"namespace": "ns", "name": "report"},
        "inputs": [{"namespace": "db", "name": "t"}],
    }
    await house.take([reader, failing("disk full") | {"outputs": [{"namespace": "db", "name": "t"}]}])
    (task,) = house.tasks
    assert [(row["name"], row["hops"]) for row in (task.context or {})["downstream"]] == [("report", 1), ("t", 1)]


async def test_an_event_of_hundreds_of_datasets_is_taken_in_steps_and_completely() -> None:
    many = [{"namespace": "db", "name": f"t{at}"} for at in range(450)]
    house = House()
    await house.take([failing("disk full") | {"inputs": many, "outputs": many[:1]}])
    assert len(house.items("datasets")) == 450
    assert len(house.items("edges")) == 451
    assert len(record(house.one("runs", "r-1"), RunRecord).inputs) == 450
    assert len(house.tasks) == 1


async def test_a_stored_record_is_read_back_as_it_was() -> None:
    house = House()
    await house.take(orders(MONDAY))
    written = len(house.written)
    await house.take(orders(MONDAY))
    assert len(house.written) == written
    assert record(house.one("jobs", "prod/orders_ingest.fetch_orders"), JobRecord).owners == ("team-ingest",)
