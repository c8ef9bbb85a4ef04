"""The lineage graph is the union of what events say, whatever their order and number."""

import itertools
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from agents.lineage_data import event_sets, expected, orders
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import dataset, job
from counterpoint.lineage.graph_records import changed_records, records_of_event
from counterpoint.lineage.openlineage.events import EventType, OpenLineageEvent
from counterpoint.lineage.openlineage.parser import parse_event
from counterpoint.lineage.records import (
    SHAPES,
    DatasetRecord,
    GraphRecord,
    JobRecord,
    RecordKey,
    RunRecord,
    merge_records,
)

SETS = {name: [parse_event(raw) for raw in events] for name, events in event_sets().items()}


def built(events: Iterable[OpenLineageEvent]) -> dict[RecordKey, GraphRecord]:
    known: dict[RecordKey, GraphRecord] = {}
    for event in events:
        known |= changed_records(event, known)
    return known


def run_of(records: Mapping[RecordKey, GraphRecord], run_id: str) -> RunRecord:
    run = records["runs", run_id]
    assert isinstance(run, RunRecord)
    return run


def event(kind: str, second: int, run_id: str = "r-1", **more: Any) -> OpenLineageEvent:
    at = datetime(2026, 11, 20, 10, tzinfo=UTC) + timedelta(seconds=second)
    named = {"eventTime": at.isoformat(), "eventType": kind, "run": {"runId": run_id}}
    return parse_event({**named, "job": {"namespace": "ns", "name": "a"}, **more})


@pytest.mark.parametrize("name", expected())
def test_a_set_makes_as_many_jobs_datasets_and_parts_as_were_counted(name: str) -> None:
    records, counted = built(SETS[name]).values(), expected()[name]
    assert sum(isinstance(record, JobRecord) for record in records) == counted["jobs"]
    assert sum(isinstance(record, DatasetRecord) for record in records) == counted["datasets"]
    parts = [record for record in records if isinstance(record, LineageEdge) and record.kind is EdgeKind.PARENT]
    assert len(parts) == counted["parent_links"]


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_order_and_repetition_of_events_change_nothing(name: str, data: st.DataObject) -> None:
    events = SETS[name]
    again = data.draw(st.lists(st.sampled_from(range(len(events))), max_size=6))
    shuffled = data.draw(st.permutations([*range(len(events)), *again]))
    assert built(events[at] for at in shuffled) == built(events)


def test_every_order_of_a_failing_run_makes_the_same_graph() -> None:
    events = [parse_event(raw) for raw in orders("2_tuesday_fails")][:5]
    graphs = [built(order) for order in itertools.permutations(events)]
    assert all(graph == graphs[0] for graph in graphs)


@pytest.mark.parametrize("name", SETS)
def test_an_event_that_is_known_changes_nothing_even_after_a_round_trip_through_json(name: str) -> None:
    records = built(SETS[name])
    stored = {
        (store, record_id): SHAPES[store].model_validate(record.model_dump(mode="json", exclude_none=True))
        for (store, record_id), record in records.items()
    }
    assert stored == records
    assert all(changed_records(event, stored) == {} for event in SETS[name])


MOMENTS = st.sampled_from(range(4))
KINDS = st.sampled_from([kind.value for kind in EventType])
OWNERS = st.sampled_from([{}, {"ownership": {"owners": [{"name": "x"}]}}, {"ownership": {"owners": [{"name": "y"}]}}])
NOISE = st.builds(
    lambda kind, second, owners, inputs: event(
        kind, second, job={"namespace": "ns", "name": "a", "facets": owners}, inputs=inputs
    ),
    KINDS,
    MOMENTS,
    OWNERS,
    st.sampled_from([[], [{"namespace": "db", "name": "t"}], [{"namespace": "db", "name": "u"}]]),
)


@given(one=NOISE, other=NOISE, third=NOISE)
def test_joining_is_commutative_associative_and_idempotent(
    one: OpenLineageEvent, other: OpenLineageEvent, third: OpenLineageEvent
) -> None:
    key: RecordKey = ("runs", "r-1")
    for key in (("runs", "r-1"), ("jobs", "ns/a")):
        a, b, c = (records_of_event(e)[key] for e in (one, other, third))
        assert merge_records(a, b) == merge_records(b, a)
        assert merge_records(a, merge_records(b, c)) == merge_records(merge_records(a, b), c)
        assert merge_records(a, a) == a


def test_a_complete_event_adds_to_its_start_and_empty_ones_remove_nothing() -> None:
    full = {"inputs": [{"namespace": "db", "name": "t"}], "outputs": [{"namespace": "db", "name": "u"}]}
    records = built(
        [event("START", 0), event("COMPLETE", 1, **full), event("START", 9, "r-2"), event("COMPLETE", 10, "r-2")]
    )
    a, t, u = job("ns", "a"), dataset("db", "t"), dataset("db", "u")
    edges = {(e.kind, e.source, e.target) for e in records.values() if isinstance(e, LineageEdge)}
    assert edges == {("data", t.ref, a.ref), ("data", a.ref, u.ref)}
    assert run_of(records, "r-1").inputs == (t.ref,)
    assert run_of(records, "r-2").inputs == ()


def test_a_late_start_does_not_reopen_a_run_but_a_retry_does() -> None:
    assert run_of(built([event("COMPLETE", 5), event("START", 0)]), "r-1").state is EventType.COMPLETE
    assert run_of(built([event("COMPLETE", 5), event("OTHER", 9)]), "r-1").state is EventType.COMPLETE
    assert run_of(built([event("FAIL", 5), event("START", 6)]), "r-1").state is EventType.RUNNING
    assert run_of(built([event("START", 6), event("COMPLETE", 9), event("FAIL", 5)]), "r-1").state is EventType.COMPLETE


def test_the_run_id_that_failed_on_tuesday_is_complete_once_it_was_fixed() -> None:
    run_id = orders("2_tuesday_fails")[0]["run"]["runId"]
    failed = built(parse_event(raw) for raw in orders("2_tuesday_fails"))
    assert run_of(failed, run_id).state is EventType.FAIL
    fixed = built(parse_event(raw) for raw in [*orders("3_tuesday_fixed"), *orders("2_tuesday_fails")])
    assert run_of(fixed, run_id).state is EventType.COMPLETE
    fetch = fixed["jobs", "prod/orders_ingest.fetch_orders"]
    assert isinstance(fetch, JobRecord)
    assert fetch.last_success is not None
    assert fetch.last_failure is not None
    assert fetch.last_success.at > fetch.last_failure.at


def test_a_task_knows_its_dag_its_owner_and_its_successors_before_those_ever_ran() -> None:
    records = built(parse_event(raw) for raw in orders("2_tuesday_fails"))
    fetch, clean = (
        records["jobs", "prod/orders_ingest.fetch_orders"],
        records["jobs", "prod/orders_ingest.clean_orders"],
    )
    assert isinstance(fetch, JobRecord)
    assert isinstance(clean, JobRecord)
    dag = job("prod", "orders_ingest").ref
    assert (fetch.parent, clean.parent) == (dag, dag)
    assert fetch.owners == ("team-ingest",)
    edges = {(e.kind.value, *(end.name for end in e.ends)) for e in records.values() if isinstance(e, LineageEdge)}
    assert edges == {
        ("control", "orders_ingest.fetch_orders", "orders_ingest.clean_orders"),
        ("data", "orders_ingest.fetch_orders", "/data/lake/raw/orders.csv"),
        ("parent", "orders_ingest", "orders_ingest.fetch_orders"),
        ("parent", "orders_ingest", "orders_ingest.clean_orders"),
    }


def test_owners_of_a_dataset_event_and_of_a_job_event_are_kept() -> None:
    owned = {"facets": {"ownership": {"owners": [{"name": "team-x"}]}}}
    at = {"eventTime": "2026-11-20T10:00:00Z"}
    records = built(
        [
            parse_event({**at, "dataset": {"namespace": "db", "name": "t", **owned}}),
            parse_event(
                {**at, "job": {"namespace": "ns", "name": "a", **owned}, "outputs": [{"namespace": "db", "name": "t"}]}
            ),
        ]
    )
    for key in (("datasets", "db/t"), ("jobs", "ns/a")):
        record = records[key]  # type: ignore[index]
        assert isinstance(record, JobRecord | DatasetRecord)
        assert record.owners == ("team-x",)


def test_the_root_of_a_run_takes_in_the_parent_that_never_spoke() -> None:
    facets = {
        "parent": {
            "job": {"namespace": "ns", "name": "dag.task"},
            "run": {"runId": "t"},
            "root": {"job": {"namespace": "ns", "name": "dag"}, "run": {"runId": "d"}},
        }
    }
    records = built([event("START", 0, run={"runId": "r-1", "facets": facets})])
    parts = {tuple(end.name for end in e.ends) for e in records.values() if isinstance(e, LineageEdge)}
    assert parts == {("dag.task", "a"), ("dag", "dag.task")}


def test_a_job_is_never_part_of_itself() -> None:
    facets = {"parent": {"job": {"namespace": "ns", "name": "a"}, "run": {"runId": "other"}}}
    records = built([event("START", 0, run={"runId": "r-1", "facets": facets})])
    assert not [record for record in records.values() if isinstance(record, LineageEdge)]
