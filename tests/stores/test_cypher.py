"""Cypher only reads: by its words, by the engine's plan and by the process it runs in; and it ends in its limits."""

import asyncio
import json
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterpoint.memory.projection import cypher as cypher_module
from counterpoint.memory.projection.cypher import check_words
from counterpoint.memory.projection.cypher_worker import MEMORY_LIMIT_BYTES
from counterpoint.memory.projection.graph import Graph
from counterpoint.memory.projection.tier import RecordChange, TierPosition
from counterpoint.proto.errors import Away, CounterpointError, Permanent

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
COSTLY = [
    "UNWIND range(1, 100000000) AS x RETURN count(x)",
    "RETURN size(range(1, 50000000))",
    "RETURN lpad('', 500000000, 'x')",
    "UNWIND range(1, 10000000) AS x RETURN x, x, x ORDER BY x",
    "UNWIND range(1, 30000) AS x RETURN collect(lpad('', 10000, 'x'))",
    "UNWIND range(1, 100000) AS x UNWIND range(1, 100000) AS y RETURN sum(x * y)",
]
"""Each builds values of hundreds of megabytes, or takes hours."""
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


def unchecked_plan(path: Path) -> None:
    """Write a worker whose look at the plan has a hole."""
    path.write_text(
        "from counterpoint.memory.projection import cypher_worker\n"
        "cypher_worker.check_plan = lambda plan: None\n"
        "cypher_worker.main()\n"
    )


def made_in(folder: Path) -> list[Path]:
    return list(folder.glob("out*"))


async def ask(graph: Graph, query: str, parameters: dict[str, Any] | None = None, limit: int = 100) -> Any:
    return await graph.cypher(PROJECT, query, parameters or {}, limit, 1000)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


_WATCHER = """
import resource, subprocess, sys
ended = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, env={})
print(ended.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def peak_of_process(path: Path, query: str) -> tuple[int, int]:
    """The exit code of a worker that runs a query, and the most memory that it had.

    It is started by a small process: the peak of a child is at least that of the process which starts it.
    """
    asked = {"path": str(path), "query": query, "parameters": {}, "limit": 10, "timeout_ms": 1000}
    command = [sys.executable, "-c", _WATCHER, sys.executable, "-I", str(cypher_module._WORKER)]
    ended = subprocess.run(command, input=json.dumps(asked).encode(), stdout=subprocess.PIPE, check=True)
    code, most_bytes = map(int, ended.stdout.split())
    return code, most_bytes


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
    monkeypatch.setattr(cypher_module, "check_words", lambda query: None)
    with pytest.raises(CounterpointError, match=r"cypher|Too many open files"):
        await ask(graph, query.replace("{folder}", str(tmp_path)))
    assert not made_in(tmp_path)
    assert await whole(graph) == before


@pytest.mark.parametrize("query", WRITES)
async def test_the_process_could_not_write_either(
    graph: Graph, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await whole(graph)
    unchecked_plan(tmp_path / "worker.py")
    with monkeypatch.context() as holes:
        holes.setattr(cypher_module, "check_words", lambda query: None)
        holes.setattr(cypher_module, "_WORKER", tmp_path / "worker.py")
        with pytest.raises(Permanent, match="read-only"):
            await ask(graph, query)
    assert await whole(graph) == before


@pytest.mark.parametrize("query", ["LOAD FROM '{folder}/in.csv' RETURN *", "COPY (RETURN 1) TO '{folder}/out.csv'"])
async def test_the_process_could_open_no_file_either(
    graph: Graph, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_text("a\nsecret\n")
    unchecked_plan(tmp_path / "worker.py")
    monkeypatch.setattr(cypher_module, "check_words", lambda query: None)
    monkeypatch.setattr(cypher_module, "_WORKER", tmp_path / "worker.py")
    with pytest.raises(CounterpointError, match=r"cypher|Too many open files"):
        await ask(graph, query.replace("{folder}", str(tmp_path)))
    assert not made_in(tmp_path)


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


@pytest.mark.parametrize("query", COSTLY)
async def test_a_query_that_builds_large_values_costs_this_process_nothing(graph: Graph, query: str) -> None:
    before = peak_bytes()
    with pytest.raises(Permanent, match=r"exceeds the memory limit of a query, 256 MB|took longer than 1000 ms"):
        await ask(graph, query)
    assert peak_bytes() - before < 64 * 2**20
    assert (await ask(graph, "RETURN 1")).rows == ((1,),)


@pytest.mark.parametrize("query", COSTLY)
async def test_its_process_keeps_its_limit_of_memory(graph: Graph, query: str, tmp_path: Path) -> None:
    path = tmp_path / "graph" / PROJECT / "live" / "line.lbug"
    code, most_bytes = await asyncio.to_thread(peak_of_process, path, query)
    assert code in (0, -signal.SIGALRM, -signal.SIGABRT, -signal.SIGSEGV)
    assert most_bytes < MEMORY_LIMIT_BYTES + 144 * 2**20


async def test_a_query_ends_in_its_time(graph: Graph) -> None:
    endless = "UNWIND range(1, 100000) AS x UNWIND range(1, 100000) AS y RETURN sum(x * y)"
    with pytest.raises(Permanent, match="took longer than 50 ms"):
        await graph.cypher(PROJECT, endless, {}, 10, 50)
    assert (await ask(graph, "RETURN 1")).rows == ((1,),)


async def test_a_process_that_does_not_answer_is_away(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker.py").write_text("import sys\nsys.stdin.read()\nsys.exit(1)\n")
    monkeypatch.setattr(cypher_module, "_WORKER", tmp_path / "worker.py")
    with pytest.raises(Away, match="does not respond"):
        await ask(graph, "RETURN 1")


async def test_a_process_that_is_late_is_ended_and_away(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker.py").write_text("import signal\nsignal.pause()\n")
    monkeypatch.setattr(cypher_module, "_WORKER", tmp_path / "worker.py")
    monkeypatch.setattr(cypher_module, "START_LIMIT_S", 0.0)
    with pytest.raises(Away, match="not open within 0 s"):
        await ask(graph, "RETURN 1")


async def test_a_query_sees_earlier_commits(graph: Graph) -> None:
    """Before and after a checkpoint: changes are in the write-ahead log first."""
    count = "MATCH (a:Action) RETURN count(a)"
    assert (await ask(graph, count)).rows == ((12,),)
    body = {"task_id": "t1", "kind": "set", "after": [], "reasoning": "x" * 9000}
    for first in range(12, 1212, 600):
        changes = [RecordChange(PROJECT, "actions", f"b{n}", 1, n, "router", 1, "t1", body=body) for n in range(600)]
        changes = [replace(change, id=f"b{first + n}", seq=first + n) for n, change in enumerate(changes)]
        await graph.apply(PROJECT, changes, TierPosition("life", first + 600))
        assert (await ask(graph, count)).rows == ((first + 600,),)


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
