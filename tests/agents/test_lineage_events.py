"""OpenLineage events are read tolerantly, and what makes one unusable is named."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from agents.lineage_data import event_sets, orders, spec_facets
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.graph.names import Node, NodeKind, dataset, job, node_of
from counterpoint.lineage.openlineage.events import DatasetEvent, EventType, JobEvent, RunEvent
from counterpoint.lineage.openlineage.facets import ERROR_LIMIT_CHARS, parse_time
from counterpoint.lineage.openlineage.parser import parse_event
from counterpoint.proto.errors import Permanent
from counterpoint.proto.signature import headline

MINIMAL = {
    "eventTime": "2026-11-20T10:00:00Z",
    "eventType": "START",
    "run": {"runId": "r-1"},
    "job": {"namespace": "ns", "name": "a"},
}


def run_event(**changed: Any) -> RunEvent:
    event = parse_event({**MINIMAL, **changed})
    assert isinstance(event, RunEvent)
    return event


def problems(raw: object) -> dict[str, str]:
    with pytest.raises(Permanent) as caught:
        parse_event(raw)
    assert caught.value.code == "invalid_lineage_event"
    return {problem.field: problem.problem for problem in caught.value.problems}


@pytest.mark.parametrize("name", event_sets())
def test_every_event_of_real_producers_is_read_with_nothing_ignored(name: str) -> None:
    for raw in event_sets()[name]:
        event = parse_event(raw)
        assert isinstance(event, RunEvent)
        assert event.ignored == ()
        assert event.job.node == job(raw["job"]["namespace"], raw["job"]["name"])
        assert [use.node.name for use in event.inputs] == [named["name"] for named in raw.get("inputs", [])]


@pytest.mark.parametrize("name", spec_facets())
def test_every_example_facet_of_the_spec_is_accepted_wherever_it_stands(name: str) -> None:
    facets = spec_facets()[name]
    event = run_event(
        run={"runId": "r-1", "facets": facets},
        job={"namespace": "ns", "name": "a", "facets": facets},
        outputs=[{"namespace": "db", "name": "t", "facets": facets}],
    )
    assert event.outputs[0].node == dataset("db", "t")


def test_a_failed_try_of_airflow_tells_all_that_an_incident_needs() -> None:
    event = parse_event(orders("2_tuesday_fails")[5])
    assert isinstance(event, RunEvent)
    assert event.type is EventType.FAIL
    assert event.job.owners == ("team-ingest",)
    assert event.error is not None
    assert event.error.headline.startswith("ConnectionError: could not resolve ldap.internal")
    assert event.error.stack_trace is not None
    assert 'raise ConnectionError(os.environ["ORDERS_BREAK"])' in event.error.stack_trace
    assert (event.airflow.try_number, event.airflow.retries) == (3, 2)
    assert event.airflow.dag_id == "orders_ingest"
    assert event.airflow.dag_run_id == "manual__2026-11-20T17:03:46.866268+00:00"
    assert event.airflow.log_url is not None
    assert event.airflow.log_url.endswith("fetch_orders?try_number=3")
    assert event.nominal_start == datetime(2026, 11, 17, tzinfo=UTC)
    assert event.parent is not None
    assert event.parent.job == job("prod", "orders_ingest")
    assert event.root == event.parent
    assert event.after == (job("prod", "orders_ingest.clean_orders"),)
    assert not event.is_whole


def test_a_dag_run_is_told_from_a_task() -> None:
    assert [parse_event(raw).is_whole for raw in orders("2_tuesday_fails")] == [False] * 6 + [True]  # type: ignore[union-attr]


def test_a_dag_run_without_job_type_is_known_by_its_facet() -> None:
    assert run_event(run={"runId": "r", "facets": {"airflowState": {"dagRunState": "failed"}}}).is_whole


def test_job_and_dataset_events_are_read() -> None:
    owners = {"ownership": {"owners": [{"name": "team-b"}, {"name": "team-a"}]}}
    code = {"sourceCodeLocation": {"type": "git", "url": "https://x/y", "version": "abc"}}
    about_job = parse_event(
        {
            "eventTime": "2026-11-20T10:00:00Z",
            "run": None,
            "job": {"namespace": "ns", "name": "a", "facets": {**owners, **code}},
            "inputs": [{"namespace": "db", "name": "t"}],
        }
    )
    assert isinstance(about_job, JobEvent)
    assert not isinstance(about_job, RunEvent)
    assert about_job.job.owners == ("team-a", "team-b")
    assert about_job.job.code is not None
    assert about_job.job.code.version == "abc"
    assert about_job.inputs[0].node == dataset("db", "t")
    about_dataset = parse_event(
        {"eventTime": "2026-11-20T10:00:00Z", "dataset": {"namespace": "db", "name": "t", "facets": owners}}
    )
    assert isinstance(about_dataset, DatasetEvent)
    assert about_dataset.dataset.owners == ("team-a", "team-b")


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2026-11-20T10:00:00.123456789Z", 123456),
        ("2026-11-20T10:00:00.123456", 123456),
        ("2026-11-20T10:00:00", 0),
        ("2026-11-20T10:00:00z", 0),
        ("2026-11-20 12:00:00,5+02:00", 500000),
        ("2026-11-20T19:00:00.001+09:00[Asia/Tokyo]", 1000),
        ("2026-11-20T05:00:00-0500", 0),
    ],
)
def test_times_of_all_producers_are_moments_in_utc(text: str, microseconds: int) -> None:
    assert run_event(eventTime=text).at == datetime(2026, 11, 20, 10, 0, 0, microseconds, tzinfo=UTC)


def test_a_time_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="out of range"):
        parse_time("0001-01-01T00:00:00+14:00")


@pytest.mark.parametrize(
    ("said", "meant"),
    [("complete", "COMPLETE"), (" Fail ", "FAIL"), (None, "OTHER"), ("SKIPPED", "OTHER"), ("RUNNING", "RUNNING")],
)
def test_event_types_are_read_in_any_case_and_unknown_ones_are_other(said: str | None, meant: str) -> None:
    assert run_event(eventType=said).type is EventType(meant)


@pytest.mark.parametrize(
    "facets", [None, {}, [], "x", {"parent": None, "airflow": [], "errorMessage": "x", "new": {"a": 1}}]
)
def test_null_misshapen_and_unknown_facets_do_no_harm(facets: object) -> None:
    event = run_event(
        run={"runId": "r-1", "facets": facets},
        job={"namespace": "ns", "name": "a", "facets": facets},
        inputs=None,
        outputs=[{"namespace": "db", "name": "t", "facets": facets}],
        somethingNew=[1, 2],
    )
    assert event.parent is None
    assert event.error is None
    assert event.inputs == ()
    assert len(event.outputs) == 1


@pytest.mark.parametrize("lists", ["{[1]}", "{[1]: 2}", "-" * 5000 + "1", "[" * 5000, "\ud800", "['a', 1, b'c']"])
@pytest.mark.parametrize("number", ["9" * 5000, "٣", "-1", "1e9", " 7 "])
def test_texts_of_lists_and_numbers_that_are_none_do_no_harm(lists: str, number: str) -> None:
    task = {"task_id": "a", "upstream_task_ids": lists, "downstream_task_ids": lists, "retries": number}
    airflow = {"dag": {"dag_id": "daily"}, "task": task, "taskInstance": {"try_number": number, "map_index": number}}
    named = {"namespace": "ns", "name": "daily.a"}
    event = run_event(job=named, run={"runId": "r-1", "facets": {"airflow": airflow}})
    assert event.job.node == job("ns", "daily.a")


def test_ignored_parts_of_an_event_are_named() -> None:
    event = run_event(
        inputs=[{"namespace": "db"}, {"namespace": "db", "name": "t"}, 7],
        outputs={"namespace": "db"},
        run={
            "runId": "r-1",
            "facets": {"parent": {"job": {"namespace": "ns"}}, "nominalTime": {"nominalStartTime": "tomorrow"}},
        },
    )
    assert [use.node.name for use in event.inputs] == ["t"]
    assert {problem.field for problem in event.ignored} == {
        "inputs[0].name",
        "inputs[2]",
        "outputs",
        "run.facets.parent.job.name",
        "run.facets.parent.run.runId",
        "run.facets.nominalTime.nominalStartTime",
    }


def test_every_field_that_makes_an_event_unusable_is_named() -> None:
    assert problems([]) == {"": "is not a JSON object"}
    assert problems({"eventTime": "2026-11-20T10:00:00Z"})["job"].startswith("is missing")
    assert problems({**MINIMAL, "run": "r-1"}) == {"run": "is not an object"}
    assert problems({**MINIMAL, "eventType": 5}) == {"eventType": "is not a string"}
    assert problems({"eventTime": "soon", "run": {"runId": " "}, "job": {"name": 3}}) == {
        "eventTime": "is not a time in RFC 3339",
        "run.runId": "is empty",
        "job.namespace": "is missing",
        "job.name": "is not a string",
    }
    assert problems({**MINIMAL, "job": {"namespace": "ns", "name": "x" * 501}}) == {
        "job.name": "is longer than 500 characters"
    }
    assert problems({**MINIMAL, "job": {"namespace": "n\x00s", "name": "a"}}) == {
        "job.namespace": "contains unprintable characters"
    }
    assert problems({"eventTime": "", "dataset": {"namespace": "db"}}) == {
        "eventTime": "is missing",
        "dataset.name": "is missing",
    }


def test_an_error_text_that_no_store_can_hold_is_cleaned() -> None:
    event = run_event(
        eventType="FAIL", run={"runId": "r", "facets": {"errorMessage": {"message": "bad\x00 \ud800 end"}}}
    )
    assert event.error is not None
    assert event.error.headline == "bad ? end"


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    log = "exit status 2.\n" + "gain row ok\n" * 1_000
    trace = "Traceback (most recent call last):\n" + '  File "a.py", line 1, in f\n' * 300
    for message in (log, log + "Traceback (most recent call last):\n", trace):
        facets = {"errorMessage": {"message": message + "ValueError: 17 dead columns"}}
        error = run_event(eventType="FAIL", run={"runId": "r", "facets": facets}).error
        assert error is not None
        assert len(error.headline) <= ERROR_LIMIT_CHARS
        assert error.headline.startswith(message[:14])
        assert error.headline.endswith("ValueError: 17 dead columns")
        assert (headline(error.headline)[0] == "ValueError") == ("Traceback" in message)


def test_owners_that_airflow_masked_are_no_owners() -> None:
    facets = {"ownership": {"owners": [{"name": "***"}]}}
    assert run_event(job={"namespace": "ns", "name": "a", "facets": facets}).job.owners == ()


def test_job_dependencies_are_control_neighbours() -> None:
    facet = {
        "upstream": [{"job": {"namespace": "ns", "name": "b"}}],
        "downstream": [{"job": {"namespace": "ns", "name": "c"}}],
    }
    event = run_event(run={"runId": "r", "facets": {"jobDependencies": facet}})
    assert (event.before, event.after) == ((job("ns", "b"),), (job("ns", "c"),))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_no_change_to_a_real_event_does_more_than_be_read_or_refused(data: st.DataObject) -> None:
    raw = copy.deepcopy(orders("2_tuesday_fails")[1])
    at: Any = raw
    for _ in range(data.draw(st.integers(0, 5))):
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(at[key], dict | list) or not at[key]:
            at[key] = data.draw(JSON)
            break
        at = at[key]
    else:
        if isinstance(at, dict) and at:
            at[data.draw(st.sampled_from(list(at)))] = data.draw(JSON)
    try:
        said = parse_event(raw).model_dump_json()
    except Permanent as refused:
        said = ", ".join(problem.field for problem in refused.problems)
    assert said


@given(kind=st.sampled_from(NodeKind), namespace=st.text(min_size=1), name=st.text(min_size=1))
def test_an_id_of_a_job_or_dataset_says_which_it_is(kind: NodeKind, namespace: str, name: str) -> None:
    node = Node(kind=kind, namespace=namespace, name=name)
    assert node_of(node.ref) == node


def test_ids_read_as_namespace_and_name() -> None:
    assert job("prod", "orders_ingest.fetch_orders").id == "prod/orders_ingest.fetch_orders"
    assert dataset("file", "/data/x.csv").ref == "dataset:file//data/x.csv"
    assert dataset("gs://bucket", "x.csv").id == "gs:%2F%2Fbucket/x.csv"
