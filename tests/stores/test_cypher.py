"""Cypher only reads: by its words, by the engine's plan and by the transaction it runs in; and it ends in time."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from counterpoint.memory.projection import graph as graph_module
from counterpoint.memory.projection.cypher import check_words
from counterpoint.memory.projection.graph import Graph
from counterpoint.memory.projection.tier import RecordChange, TierPosition
from counterpoint.proto.errors import Permanent

PROJECT = "orders"
WRITES = [
    "CREATE (a:Action {action_id: 'x'})",
    "MATCH (a:Action) SET a.kind = 'x'",
    "MATCH (a:Action) DETACH DELETE a",
    "MERGE (a:Action {action_id: 'x'}) RETURN a",
    "UNWIND [1] AS x CREATE (a:Action {action_id: 'x'}) RETURN a",
    "CREATE NODE TABLE Other(id STRING PRIMARY KEY)",
    "DROP TABLE LEADS_TO",
    "ALTER TABLE Action ADD other STRING",
]
ELSEWHERE = [
    "COPY (MATCH (a:Action) RETURN a.action_id) TO '{folder}/out.csv'",
    "COPY Action FROM '{folder}/in.csv'",
    "LOAD FROM '{folder}/in.csv' RETURN *",
    "MATCH (a:Action) WITH a.action_id AS known LOAD FROM '{folder}/in.csv' RETURN *",
    "EXPORT DATABASE '{folder}/out'",
    "IMPORT DATABASE '{folder}/out'",
    "ATTACH '{folder}/other' AS other (dbtype lbug)",
    "DETACH other",
    "USE other",
    "INSTALL httpfs",
    "LOAD EXTENSION httpfs",
    "CALL threads=4",
    "CALL show_tables() RETURN *",
    "CALL current_setting('threads') RETURN *",
    "CREATE MACRO plus(x) AS x + 1",
    "CREATE SEQUENCE numbers",
    "BEGIN TRANSACTION",
    "CHECKPOINT",
    "EXPLAIN MATCH (a) RETURN a",
    "PROFILE MATCH (a) RETURN a",
]
BOUND = [query for query in ELSEWHERE[:-2] if not query.startswith("EXPORT")]
"""Not EXPORT: the engine makes its folder when it is merely explained. So the words are looked at first."""
SMUGGLED = [
    "RETURN 1; CREATE (a:Action {action_id: 'x'})",
    "MATCH (a:Action) RETURN a; RETURN 2",
    "match (a:Action) /* only this */ sEt a.kind = 'x'",
    "MATCH (a:Action) // reads\nDELETE a",
    "RETURN 'it''s' CREATE (a:Action {action_id: 'x'})",
    "MATCH (a:Action) WHERE a.kind = 'x\\'' SET a.kind = 'y' RETURN '",
    "RETURN `a` CREATE (b:Action {action_id: `x`})",
    "",
    "// nothing",
    ";",
    "RETURN 'never ends",
]


@pytest.fixture
async def graph(tmp_path: Path) -> AsyncIterator[Graph]:
    made = Graph(tmp_path / "graph", 2)
    bodies = [{"task_id": "t1", "kind": "set", "after": [f"a{n - 1}"] if n else []} for n in range(12)]
    changes = [
        RecordChange(PROJECT, "actions", f"a{n}", 1, n, "router", 1, "t1", body=body) for n, body in enumerate(bodies)
    ]
    await made.apply(PROJECT, changes, TierPosition("life", 12))
    yield made
    await made.close()


def made_in(folder: Path) -> list[Path]:
    return list(folder.glob("out*"))


async def ask(graph: Graph, query: str, parameters: dict[str, Any] | None = None, limit: int = 100) -> Any:
    return await graph.cypher(PROJECT, query, parameters or {}, limit, 1000)


async def whole(graph: Graph) -> Any:
    return (await ask(graph, "MATCH (n) RETURN n ORDER BY n.seq")).rows


@pytest.mark.parametrize("query", [*WRITES, *ELSEWHERE, *SMUGGLED])
async def test_a_query_that_writes_is_refused_before_the_engine_sees_it(
    graph: Graph, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = query.replace("{folder}", str(tmp_path))
    with pytest.raises(Permanent) as refused:
        check_words(query)
    assert refused.value.code == "cypher"
    with pytest.raises(Permanent, match="cypher"):
        await ask(graph, query)


@pytest.mark.parametrize("query", [*WRITES, *BOUND, SMUGGLED[0]])
async def test_the_engine_would_refuse_it_too(
    graph: Graph, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its plan, or because it cannot be bound: as if the look at the words had a hole."""
    (tmp_path / "in.csv").write_text("a\nsecret\n")
    before = await whole(graph)
    monkeypatch.setattr(graph_module, "check_words", lambda query: None)
    with pytest.raises(Permanent, match="cypher"):
        await ask(graph, query.replace("{folder}", str(tmp_path)))
    assert not made_in(tmp_path)
    assert await whole(graph) == before


@pytest.mark.parametrize("query", WRITES)
async def test_the_transaction_would_refuse_it_too(graph: Graph, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await whole(graph)
    with monkeypatch.context() as holes:
        holes.setattr(graph_module, "check_words", lambda query: None)
        holes.setattr(graph_module, "check_plan", lambda plan: None)
        with pytest.raises(Permanent, match="read-only transaction"):
            await ask(graph, query)
    assert await whole(graph) == before


@pytest.mark.parametrize(
    ("query", "parameters", "wanted"),
    [
        ("MATCH (a:Action) WHERE a.kind = 'set' RETURN count(*) AS n", {}, 12),
        ("MATCH (a:Action) WHERE a.kind = 'CREATE; DELETE' RETURN count(*)", {}, 0),
        ("MATCH (a:Action) /* CREATE */ RETURN count(*) // DELETE", {}, 12),
        ("OPTIONAL MATCH (`create`:Action {action_id: $id}) RETURN count(`create`);", {"id": "a3"}, 1),
        ("MATCH (a:Action) WHERE NOT EXISTS { MATCH (a)-[:LEADS_TO]->(:Action) } RETURN count(*)", {}, 1),
        ("UNWIND $ids AS id MATCH (a:Action {action_id: id}) RETURN count(a)", {"ids": ["a1", "a2"]}, 2),
        ("MATCH p = (:Action {action_id: 'a0'})-[:LEADS_TO* SHORTEST 1..200]->(:Action {action_id: 'a11'}) "
         "RETURN length(p)", {}, 11),
    ],
)  # fmt: skip
async def test_a_query_that_only_reads_is_answered(graph: Graph, query: str, parameters: Any, wanted: int) -> None:
    found = await ask(graph, query, parameters)
    assert (found.rows, found.cut) == (((wanted,),), False)


async def test_rows_are_cut_where_they_were_to_be_and_where_they_would_not_fit(graph: Graph) -> None:
    found = await ask(graph, "MATCH (a:Action) RETURN a.action_id ORDER BY a.seq", limit=3)
    assert (found.rows, found.cut) == ((("a0",), ("a1",), ("a2",)), True)
    assert not (await ask(graph, "MATCH (a:Action) RETURN a.action_id", limit=12)).cut
    wide = await ask(graph, "UNWIND range(1, 2000) AS n RETURN lpad('', 1000, 'x')", limit=10_000)
    assert wide.cut
    assert 500 < len(wide.rows) < 1000


@pytest.mark.parametrize("value", [2**70, {"a": [1, "b"]}])
async def test_a_parameter_that_the_engine_has_no_type_for_is_the_askers_fault(graph: Graph, value: Any) -> None:
    with pytest.raises(Permanent) as refused:
        await graph.cypher(PROJECT, "RETURN $x", {"x": value}, 10, 1000)
    assert [problem.field for problem in refused.value.problems] == ["parameters"]


async def test_a_query_over_its_limits_ends_and_the_next_is_answered(graph: Graph) -> None:
    endless = "UNWIND range(1, 100000) AS x UNWIND range(1, 100000) AS y RETURN sum(x * y)"
    with pytest.raises(Permanent, match="longer than 50 ms"):
        await graph.cypher(PROJECT, endless, {}, 10, 50)
    with pytest.raises(Permanent, match=r"memory limit|longer than"):
        await graph.cypher(PROJECT, "UNWIND range(1, 10000000) AS x RETURN x, x, x", {}, 10, 2500)
    assert (await ask(graph, "RETURN 1")).rows == ((1,),)


@pytest.mark.parametrize("query", ["MATCH (a:Nothing) RETURN a", "MATCH (a RETURN a", "RETURN 1 / 0"])
async def test_an_invalid_query_is_refused_with_its_problem(graph: Graph, query: str) -> None:
    with pytest.raises(Permanent) as refused:
        await ask(graph, query)
    assert refused.value.code == "cypher"
    assert refused.value.problems[0].problem


async def test_nodes_are_shown_without_the_engines_own_ids(graph: Graph) -> None:
    ((node, edge),) = (await ask(graph, "MATCH (a:Action {action_id: 'a1'})-[e]->(:Action) RETURN a, e")).rows
    assert node["_LABEL"] == "Action"
    assert node["action_id"] == "a1"
    assert edge == {"_LABEL": "LEADS_TO"}
