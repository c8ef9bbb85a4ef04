"""Gets, lists and walks in a project with many records: by an index under row-level security, and nothing missed."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import asyncpg
import pytest
from memory_service.house import House

from counterpoint.local.postgres import run_postgres
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.migrate import migrate
from counterpoint.memory.record.statements import KEYS, edge_walk, joint, listing, records_by_key
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import EdgeWalk, Get, List

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

STORES = ("tasks", "attempts", "runs", "jobs", "edges", "incidents", "documents")
ROWS = 3_000
LONG = "x" * 190
FILL = f"""
INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, body, commit_id)
SELECT $1, store, store || n, 1, (place - 1) * {ROWS} + n, 'task-' || n % 500, 'a test', 1, 2, jsonb_build_object(
    'state', CASE WHEN n % 600 = 0 THEN 'input_required' ELSE 'completed' END,
    'error_signature', 'sig-' || n % 700, 'task_id', 'task-' || n % 500,
    'source', 'node-' || n, 'target', 'node-' || n * 2, 'job', 'job-' || n % 300, 'namespace', 'ns-' || n % 50,
    'parent_run_id', '{LONG}' || n / 3, 'root_run_id', 'root-' || n / 5), gen_random_uuid()
FROM unnest($2::text[]) WITH ORDINALITY AS s(store, place), generate_series(1, {ROWS}) AS n
"""
DECIDED = f"""
INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, body, commit_id,
                     decision_id, decision_seq, decision_sha256, decision)
SELECT $1, 'actions', 'actions' || n, 1, {ROWS} * $2::int + 2 * n, 'task-' || n % 500, 'a test', 1, 2, '{{}}',
       gen_random_uuid(), 'decision-' || n, {ROWS} * $2::int + 2 * n + 1, '', '{{}}'
FROM generate_series(1, {ROWS}) AS n
"""
"""Actions with their decisions."""
WHERES: list[tuple[str, dict[str, Any], str]] = [
    ("tasks", {"state": "input_required"}, "records_by_state"),
    ("attempts", {"error_signature": "sig-7"}, "records_by_error_signature"),
    ("attempts", {"task_id": "task-7"}, "records_by_task"),
    ("runs", {"parent_run_id": f"{LONG}9", "state": "completed"}, "records_by_parent_run_id"),
    ("runs", {"root_run_id": "root-3"}, "records_by_root_run_id"),
    ("runs", {"job": "job-3"}, "records_by_job"),
    ("incidents", {"job": "job-4", "error_signature": "sig-4"}, "records_by_"),
    ("jobs", {"namespace": "ns-3"}, "records_by_namespace"),
    ("edges", {"source": "node-5"}, "records_by_source"),
    ("edges", {"target": "node-6"}, "records_by_target"),
]


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A door before a database of its own, whose table of records autovacuum has not looked at yet."""
    async with run_postgres(tmp_path_factory.mktemp("young")) as postgres:
        await migrate(postgres.urls.owner)
        house = House(postgres.urls)
        async with house.superuser() as connection:
            await connection.execute("ALTER TABLE records SET (autovacuum_enabled = off)")
        await house.open()
        yield house
        await house.close()


@pytest.fixture(scope="module")
async def large_project(house: House) -> str:
    """A project with many records, beside others with as many."""
    name = f"p-{new_id()}"
    async with house.superuser() as connection:
        for project in (f"{name}-a", name, f"{name}-b"):
            await connection.execute(FILL, project, list(STORES))
            await connection.execute(DECIDED, project, len(STORES))
    return name


@pytest.fixture
async def memory(house: House, large_project: str) -> AsyncIterator[Connection]:
    """Memory's login, behind the fence of the large_project project."""
    connection = await asyncpg.connect(house.urls.memory)
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await connection.execute("SELECT set_config('counterpoint.project', $1, false)", large_project)
    yield connection
    await connection.close()


async def plan(memory: Connection, sql: str, values: Sequence[Any]) -> tuple[set[str], int]:
    """The indexes that a statement uses, and how many rows it reads in all."""
    explained = json.loads(await memory.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *values))
    used, read, nodes = set(), 0, [explained[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        used.add(node.get("Index Name", ""))
        if "Relation Name" in node:
            each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            read += int(each * node["Actual Loops"])
    return used, read


@pytest.mark.parametrize("looked_at", [False, True], ids=["a young table", "after autovacuum"])
async def test_lists_gets_and_walks_use_an_index_that_fits(
    house: House, large_project: str, memory: Connection, looked_at: bool
) -> None:
    if looked_at:
        async with house.superuser() as connection:
            await connection.execute("ANALYZE records")
    for store, where, index in WHERES:
        used, read = await plan(memory, *listing(List(store=store, where=where), [large_project]))
        assert any(name.startswith(index) for name in used), (where, used)
        assert read <= 100, (where, read)
    for projects in ([large_project], [large_project, "shared"]):
        _, read = await plan(memory, *listing(List(store="documents", limit=1), projects))
        assert read <= 4
    keys = [("edges", "edges7", False), ("jobs", "jobs8", True), ("jobs", "jobs9", False)]
    for number, most in ((1, 1), (2, 2), (3, 4)):
        statement, values = records_by_key(keys[:number])
        used, read = await plan(memory, statement, [large_project, *values])
        assert "records_pkey" in used
        assert read <= most
    for query, index in (
        (List(store="decisions", limit=2), "records_by_decision_seq"),
        (List(store="decisions", task_id="task-7"), "records_by_task"),
    ):
        used, read = await plan(memory, *listing(query, [large_project]))
        assert index in used
        assert read <= 100
    statement, values = records_by_key([("decisions", "decision-7", False)])
    used, read = await plan(memory, statement, [large_project, *values])
    assert "records_by_decision" in used
    assert read <= 1
    _, read = await plan(memory, *edge_walk(EdgeWalk(store="edges", start=("node-1",), depth=5), large_project))
    assert read <= 20


async def test_reads_of_one_statement_use_the_same_indexes(
    house: House, large_project: str, memory: Connection
) -> None:
    keys, values = records_by_key([("edges", "edges7", False)])
    lists = [listing(List(store=store, where=where), [large_project]) for store, where, _ in WHERES]
    used, read = await plan(memory, *joint([(keys, [large_project, *values]), *lists]))
    for _, where, index in WHERES:
        assert any(name.startswith(index) for name in used), (where, used)
    assert "records_pkey" in used
    assert read <= 100 * len(WHERES)


async def test_records_and_lists_of_a_request_are_read_without_a_transaction(house: House, large_project: str) -> None:
    expected: list[tuple[Get | List, list[str]]] = [
        (Get(store="jobs", id="jobs8"), ["jobs8"]),
        (
            List(store="attempts", where={"task_id": "task-7"}, limit=3),
            ["attempts2507", "attempts2007", "attempts1507"],
        ),
        (Get(store="jobs", id="jobs0"), []),
        (List(store="attempts", task_id="task-7", limit=2, ascending=True), ["attempts7", "attempts507"]),
        (List(store="runs", where={"job": "job-3"}), [f"runs{n}" for n in range(2703, 0, -300)]),
        (List(store="decisions", limit=2), ["decision-3000", "decision-2999"]),
    ]
    with patch.object(Database, "snapshot", side_effect=AssertionError("a transaction")):
        reply = await house.query("router", house.standing(large_project), *(query for query, _ in expected))
    assert reply.refusal is None, reply.refusal
    assert [[item.id for item in found.items] for found in reply.found] == [ids for _, ids in expected]
    assert [found.next_cursor is not None for found in reply.found] == [False, True, False, True, False, True]
    assert reply.found[1].next_cursor == reply.found[1].items[-1].seq


async def test_a_request_with_many_lists_has_the_answer_to_each(house: House, large_project: str) -> None:
    lists = [List(store="attempts", where={"task_id": f"task-{n}"}, limit=1) for n in range(1, 41)]
    reply = await house.query("router", house.standing(large_project), *lists)
    assert [[item.id for item in found.items] for found in reply.found] == [
        [f"attempts{2500 + n}"] for n in range(1, 41)
    ]


@pytest.mark.parametrize("number", [1, 2, 3, 7])
async def test_gets_are_planned_once(large_project: str, memory: Connection, number: int) -> None:
    statement, values = records_by_key([("jobs", f"jobs{n}", True) for n in range(number)])
    for _ in range(8):
        await memory.fetch(statement, large_project, *values)
    counted = "SELECT generic_plans FROM pg_prepared_statements WHERE statement = $1"
    assert await memory.fetchval(counted, statement) == 3


@pytest.mark.parametrize(("store", "where"), [(store, where) for store, where, _ in WHERES])
async def test_a_list_equals_a_query_by_containment(
    house: House, large_project: str, memory: Connection, store: str, where: dict[str, Any]
) -> None:
    contained = "SELECT id FROM records WHERE project = $1 AND store = $2 AND body @> $3 ORDER BY seq DESC"
    expected = [row["id"] for row in await memory.fetch(contained, large_project, store, where)]
    assert expected
    found, cursor = list[str](), None
    while cursor is not None or not found:
        page = await house.answer(
            "router", house.standing(large_project), List(store=store, where=where, limit=7, cursor=cursor)
        )
        found += [item.id for item in page.items]
        cursor = page.next_cursor
    assert found == expected


@pytest.mark.parametrize("field", sorted(KEYS))
async def test_a_long_value_is_compared_as_a_whole(house: House, project: str, field: str) -> None:
    values = {"short": "y" * 200, "long": "y" * 3_000, "other": "y" * 2_999 + "z"}
    async with house.superuser() as connection:
        for n, (record_id, value) in enumerate(values.items()):
            await connection.execute(
                "INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, commit_id)"
                " VALUES ($1, 'edges', $2, 1, $3, 'a test', 1, 2, $4, gen_random_uuid())",
                project, record_id, n, json.dumps({field: value}),
            )  # fmt: skip
    for record_id, value in values.items():
        found = await house.answer("router", house.standing(project), List(store="edges", where={field: value}))
        assert [item.id for item in found.items] == [record_id]


async def test_a_walk_returns_the_records_on_its_way(house: House, large_project: str) -> None:
    found = await house.answer(
        "router", house.standing(large_project), EdgeWalk(store="edges", start=("node-3",), depth=3)
    )
    assert [(item.id, item.score) for item in found.items] == [("edges3", 1), ("edges6", 2), ("edges12", 3)]
    up = EdgeWalk(store="edges", start=("node-12",), direction="up", depth=9)
    found = await house.answer("router", house.standing(large_project), up)
    assert [item.id for item in found.items] == ["edges6", "edges3"]


async def test_gets_of_one_request_are_answered_in_their_order(house: House, large_project: str) -> None:
    ids = ["edges9", "nothing", "edges2", "edges9"]
    asked = [*(Get(store="edges", id=record_id) for record_id in ids), Get(store="jobs", id="jobs4")]
    reply = await house.query("router", house.standing(large_project), *asked)
    shown = [[item.id for item in found.items] for found in reply.found]
    assert shown == [["edges9"], [], ["edges2"], ["edges9"], ["jobs4"]]


async def test_a_list_of_a_shared_store_is_in_order_over_both_projects(house: House, project: str) -> None:
    async with house.superuser() as connection:
        for n, place in enumerate((project, "shared", project, "shared")):
            await connection.execute(
                "INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, commit_id)"
                " VALUES ($1, 'entities', $2, 1, $3, 'a test', 1, 2, '{}', gen_random_uuid())",
                place, f"e-{n}", 10**9 + n,
            )  # fmt: skip
    found = await house.answer("router", house.standing(project), List(store="entities", limit=3))
    assert [item.id for item in found.items] == ["e-3", "e-2", "e-1"]
    rest = await house.answer(
        "router", house.standing(project), List(store="entities", limit=3, cursor=found.next_cursor)
    )
    assert [item.id for item in rest.items][:1] == ["e-0"]


async def test_a_record_of_the_project_goes_before_a_shared_one(house: House, project: str) -> None:
    async with house.superuser() as connection:
        for place in ("shared", project):
            await connection.execute(
                "INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, commit_id)"
                " VALUES ($1, 'entities', 'both-' || $2::text, 1, 1, 'a test', 1, 2, '{}', gen_random_uuid())",
                place, project,
            )  # fmt: skip
    found = await house.answer("router", house.standing(project), Get(store="entities", id=f"both-{project}"))
    assert [item.project for item in found.items] == [project]


async def test_a_list_by_names_has_the_records_that_a_text_names(house: House, project: str) -> None:
    rows: dict[str, dict[str, Any]] = {
        "by-name": {"name": "Google Cloud"},
        "by-alias": {"name": "Kubernetes", "aliases": ["k8s", "Äpfel-Büro"]},
        "by-term": {"name": "Amazon", "aliases": [], "terms": ["batch"]},
        "nameless": {"label": "google cloud"},
        "signs": {"name": "++"},
        "shared": {"name": "S3"},
    }
    async with house.superuser() as connection:
        for n, (record_id, body) in enumerate(rows.items()):
            await connection.execute(
                "INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, commit_id)"
                " VALUES ($1, 'providers', $2 || $5, 1, $3, 'a test', 1, 2, $4, gen_random_uuid())",
                "shared" if record_id == "shared" else project, record_id, n, json.dumps(body), project,
            )  # fmt: skip

    async def named(text: str) -> set[str]:
        found = await house.answer("router", house.standing(project), List(store="providers", named_in=text))
        return {item.id.removesuffix(project) for item in found.items if item.id.endswith(project)}

    assert await named("copy it to google-CLOUD\nand to K8S") == {"by-name", "by-alias"}
    assert await named("the googlecloud, the batches") == set()
    assert await named("BATCH") == {"by-term"}
    assert await named("pfel b ro") == {"by-alias"}
    assert await named("from s3") == {"shared"}
    assert "by-name" not in await named("")
