"""Blast radius is directed, tells data from control, names owners and says when it was cut."""

from collections import defaultdict
from collections.abc import Iterable

import pytest
from agents.lineage_data import ORDERS, event_sets, expected, orders
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import Node, dataset, job
from counterpoint.graph.radius import BlastRadius, Direction, Owners, blast_radius, lineage
from counterpoint.lineage.graph_records import changed_records, owners_by_ref
from counterpoint.lineage.openlineage.parser import parse_event
from counterpoint.lineage.records import GraphRecord, RecordKey

Graph = tuple[list[LineageEdge], Owners]


def graph(raws: Iterable[object]) -> Graph:
    known: dict[RecordKey, GraphRecord] = {}
    for raw in raws:
        known |= changed_records(parse_event(raw), known)
    return [record for record in known.values() if isinstance(record, LineageEdge)], owners_by_ref(known.values())


SETS = {name: graph(raws) for name, raws in event_sets().items()}


def by_data(radius: BlastRadius) -> tuple[dict[str, int], set[str]]:
    rows = [row for row in radius.downstream if row.edge == "data"]
    jobs = {f"{row.namespace}/{row.name}": row.hops for row in rows if row.kind == "job"}
    return jobs, {f"{row.namespace}/{row.name}" for row in rows if row.kind == "dataset"}


def named(name: str) -> Node:
    namespace, _, rest = name.partition("/")
    return job(namespace, rest)


@pytest.mark.parametrize("name", expected())
def test_data_downstream_equals_the_expected_sets(name: str) -> None:
    edges, owned = SETS[name]
    per_job = expected()[name]["per_job"]
    for job_name, want in per_job.items():
        radius = blast_radius(named(job_name), edges, owned)
        jobs, datasets = by_data(radius)
        if not radius.expanded:
            assert jobs == want["downstream_jobs"], job_name
            assert sorted(datasets) == want["affected_datasets"], job_name
            continue
        parts = {f"{part.namespace}/{part.name}" for part in radius.expanded}
        assert set(jobs) == {d for part in parts for d in per_job[part]["downstream_jobs"]} - parts, job_name
        assert datasets == {d for part in parts for d in per_job[part]["affected_datasets"]}, job_name
        assert not radius.truncated


@pytest.mark.parametrize(
    ("name", "directed", "undirected"),
    [("airflow_3.3.2_real", 4, 10), ("compat_airflow", 32, 132), ("marquez_food_delivery", 102, 338)],
)
def test_a_radius_is_never_the_undirected_component(name: str, directed: int, undirected: int) -> None:
    edges, owned = SETS[name]
    around: dict[Node, set[Node]] = defaultdict(set)
    for edge in edges:
        if edge.kind is EdgeKind.DATA:
            source, target = edge.ends
            around[source].add(target)
            around[target].add(source)
    touched = component = 0
    for job_name, want in expected()[name]["per_job"].items():
        start = named(job_name)
        radius = blast_radius(start, edges, owned)
        if not radius.expanded:
            jobs, datasets = by_data(radius)
            touched += len(jobs) + len(datasets)
        reached, ahead = {start}, [start]
        while ahead:
            fresh = around[ahead.pop()] - reached
            reached |= fresh
            ahead += fresh
        counts = want["undirected_component_counts"]
        assert len(reached) == counts["jobs"] + counts["datasets"]
        component += len(reached)
    assert (touched, component) == (directed, undirected)


def rows(radius: BlastRadius) -> list[tuple[str, int, str, str | None]]:
    return [(row.name, row.hops, row.edge, row.owner) for row in radius.downstream]


def dbt_event(model: str, reads: str, writes: str, owner: str) -> dict[str, object]:
    """An event as dbt sends it: the owner of a model is stated with its data set."""
    facets = {"ownership": {"owners": [{"name": owner}]}}
    return {
        "eventType": "COMPLETE", "eventTime": "2026-11-20T03:00:00Z", "producer": "https://example.com/dbt",
        "run": {"runId": f"01930000-0000-7000-8000-{len(model):012d}"},
        "job": {"namespace": "dbt", "name": model},
        "inputs": [{"namespace": "db", "name": reads}],
        "outputs": [{"namespace": "db", "name": writes, "facets": facets}],
    }  # fmt: skip


def test_the_owner_of_a_job_without_one_is_that_of_the_data_it_writes() -> None:
    edges, owned = graph(
        [dbt_event("stock", "raw", "stock", "team-stock"), dbt_event("revenue", "stock", "revenue", "team-finance")]
    )
    radius = blast_radius(job("dbt", "stock"), edges, owned)
    assert radius.owner == "team-stock"
    owners = {(row.kind, row.name): row.owner for row in radius.downstream}
    assert owners == {
        ("dataset", "stock"): "team-stock", ("job", "revenue"): "team-finance", ("dataset", "revenue"): "team-finance",
    }  # fmt: skip
    assert blast_radius(job("dbt", "stock"), edges, {}).owner is None


def test_blast_radius_of_the_orders_fetch() -> None:
    edges, owned = SETS["airflow_orders"]
    radius = blast_radius(job("prod", "orders_ingest.fetch_orders"), edges, owned)
    assert radius.owner == "team-ingest"
    assert rows(radius) == [
        ("orders_ingest.clean_orders", 1, "data", "team-ingest"),
        ("orders_ingest.clean_orders", 1, "control", "team-ingest"),
        ("/data/lake/raw/orders.csv", 1, "data", "team-ingest"),
        ("finance_daily.daily_revenue", 2, "data", "team-finance"),
        ("inventory_sync.stock_levels", 2, "data", "team-inventory"),
        ("/data/lake/clean/orders.parquet", 2, "data", "team-ingest"),
        ("/data/marts/finance/daily_revenue.parquet", 3, "data", "team-finance"),
        ("/data/marts/inventory/stock_levels.parquet", 3, "data", "team-inventory"),
    ]


def test_a_question_about_a_dag_is_about_its_tasks() -> None:
    edges, owned = SETS["airflow_orders"]
    radius = blast_radius(job("prod", "orders_ingest"), edges, owned)
    assert [part.name for part in radius.expanded] == ["orders_ingest.clean_orders", "orders_ingest.fetch_orders"]
    jobs = [(row.name, row.hops) for row in radius.downstream if row.kind == "job"]
    assert jobs == [("finance_daily.daily_revenue", 1), ("inventory_sync.stock_levels", 1)]


def test_a_task_knows_who_waits_for_it_though_no_data_passes() -> None:
    edges, owned = SETS["airflow_3.3.2_real"]
    radius = blast_radius(job("probe", "etl.extract"), edges, owned)
    assert ("etl.boom", 2, "control", "airflow") in rows(radius)
    assert ("etl.boom", 2, "data", "airflow") not in rows(radius)


def test_a_question_about_a_dataset_is_about_its_readers() -> None:
    edges, owned = SETS["airflow_orders"]
    radius = blast_radius(dataset("file", "/data/lake/clean/orders.parquet"), edges, owned)
    assert [(row.name, row.hops) for row in radius.downstream if row.kind == "job"] == [
        ("finance_daily.daily_revenue", 1),
        ("inventory_sync.stock_levels", 1),
    ]


def edge(kind: EdgeKind, source: str, target: str) -> LineageEdge:
    ends = [dataset("db", end[1:]) if end.startswith("#") else job("ns", end) for end in (source, target)]
    return LineageEdge(kind=kind, source=ends[0].ref, target=ends[1].ref)


DATA, CONTROL, PARENT = EdgeKind.DATA, EdgeKind.CONTROL, EdgeKind.PARENT


def test_a_way_with_one_control_step_is_control_all_along() -> None:
    edges = [edge(CONTROL, "a", "b"), edge(DATA, "b", "#t"), edge(DATA, "#t", "c")]
    assert rows(blast_radius(job("ns", "a"), edges, {})) == [
        ("b", 1, "control", None),
        ("c", 2, "control", None),
        ("t", 2, "control", None),
    ]


def test_the_part_fails_the_whole_but_not_its_other_parts() -> None:
    edges = [
        edge(PARENT, "task", "spark"),
        edge(PARENT, "task", "other"),
        edge(DATA, "other", "#o"),
        edge(DATA, "task", "#x"),
        edge(DATA, "#x", "reader"),
        edge(CONTROL, "task", "next"),
        edge(PARENT, "next", "inner"),
    ]
    assert rows(blast_radius(job("ns", "spark"), edges, {})) == [
        ("inner", 1, "control", None),
        ("next", 1, "control", None),
        ("reader", 1, "data", None),
        ("x", 1, "data", None),
    ]


def test_a_cycle_ends_and_does_not_list_where_it_began() -> None:
    edges = [
        edge(DATA, "a", "#t"),
        edge(DATA, "#t", "b"),
        edge(DATA, "b", "#u"),
        edge(DATA, "#u", "a"),
        edge(DATA, "#t", "a"),
    ]
    assert [row.name for row in blast_radius(job("ns", "a"), edges, {}).downstream] == ["b", "t", "u"]


def chain(length: int) -> list[LineageEdge]:
    return [
        step for at in range(length) for step in (edge(DATA, f"j{at}", f"#d{at}"), edge(DATA, f"#d{at}", f"j{at + 1}"))
    ]


def test_depth_and_node_limits_keep_the_nearest_and_say_that_they_cut() -> None:
    whole = blast_radius(job("ns", "j0"), chain(5), {})
    assert not whole.truncated
    assert len(whole.downstream) == 10
    shallow = blast_radius(job("ns", "j0"), chain(5), {}, depth=2)
    assert shallow.truncated
    assert max(row.hops for row in shallow.downstream) == 2
    few = blast_radius(job("ns", "j0"), chain(5), {}, limit=3)
    assert few.truncated
    assert [row.name for row in few.downstream] == ["j1", "d0", "d1"]
    assert not blast_radius(job("ns", "j0"), chain(5), {}, depth=5, limit=10).truncated
    assert blast_radius(job("ns", "j0"), chain(1), {}, partial=True).truncated


def test_an_unknown_job_has_nothing_downstream() -> None:
    radius = blast_radius(job("ns", "nobody"), chain(2), {})
    assert (radius.downstream, radius.expanded, radius.truncated) == ((), (), False)


def test_lineage_goes_up_down_or_both_as_deep_as_asked() -> None:
    edges, owned = SETS["airflow_orders"]
    clean = job("prod", "orders_ingest.clean_orders")

    def found(direction: Direction, depth: int = 20) -> dict[str, int]:
        places = lineage(clean, edges, owned, depth=depth, direction=direction).nodes
        return {place.node.name: place.hops for place in places}

    up = {"orders_ingest.clean_orders": 0, "/data/lake/raw/orders.csv": -1, "orders_ingest.fetch_orders": -1}
    down = {
        "orders_ingest.clean_orders": 0,
        "/data/lake/clean/orders.parquet": 1,
        "finance_daily.daily_revenue": 1,
        "inventory_sync.stock_levels": 1,
    }
    assert found(Direction.UP) == up
    assert found(Direction.DOWN, depth=1) == down
    assert found(Direction.BOTH, depth=1) == up | down
    graph = lineage(clean, edges, owned, depth=1)
    assert graph.truncated
    assert all({end.ref for end in edge.ends} <= {place.node.ref for place in graph.nodes} for edge in graph.edges)
    assert len(graph.edges) == 6


def test_lineage_of_a_dag_shows_its_tasks() -> None:
    edges, owned = SETS["airflow_orders"]
    graph = lineage(job("prod", "orders_ingest"), edges, owned, direction=Direction.UP)
    assert {place.node.name: place.hops for place in graph.nodes} == {
        "orders_ingest": 0,
        "orders_ingest.fetch_orders": 0,
        "orders_ingest.clean_orders": 0,
        "/data/lake/raw/orders.csv": -1,
    }


EDGES = st.lists(
    st.builds(
        lambda kind, a, b: (
            edge(kind, a, b if kind is not DATA else f"#{b}") if kind is not DATA or a < b else edge(DATA, f"#{a}", b)
        ),
        st.sampled_from(EdgeKind),
        st.sampled_from("abcdef"),
        st.sampled_from("abcdef"),
    ),
    max_size=20,
)


@given(edges=EDGES, start=st.sampled_from("abcdef"), order=st.randoms())
def test_any_graph_is_walked_to_the_same_end_in_any_order(edges: list[LineageEdge], start: str, order: object) -> None:
    shuffled = list(edges)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    radius = blast_radius(job("ns", start), edges, {})
    assert radius == blast_radius(job("ns", start), [*shuffled, *edges], {})
    assert not radius.truncated
    assert lineage(job("ns", start), edges, {}).nodes == lineage(job("ns", start), shuffled, {}).nodes


def test_the_orders_radius_is_the_same_before_and_after_the_failure() -> None:
    monday = graph(orders(ORDERS[0]))
    start = job("prod", "orders_ingest.fetch_orders")
    assert blast_radius(start, *monday) == blast_radius(start, *SETS["airflow_orders"])
