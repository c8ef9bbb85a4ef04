"""A follower reads what is new, however many records its stores have."""

import json

from memory_service.house import House

from counterpoint.memory.ingest.entities import KnowledgeGraph
from counterpoint.memory.record.sql_files import load_statements

TASKS = 3_000
_TASKS = """
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
SELECT $1, 'tasks', 't-' || n, 1, n, 'manager', 1, 2, '{"state": "completed"}', '\\x', gen_random_uuid()
FROM generate_series(1, $2::int) AS n
"""


async def follow(house: House, project: str) -> tuple[list[str], int]:
    """Ids of the next records of the knowledge graph, and the pages that are read for them."""
    statement = load_statements("counterpoint.memory.ingest")["next_changed"].format(reached=KnowledgeGraph.reached)
    stores = sorted(KnowledgeGraph.stores)
    async with house.database.reading(project) as connection:
        rows = await connection.fetch(statement, project, 50, stores)
        given = f"'{project}'", "50", f"'{{{','.join(stores)}}}'"
        for n, value in enumerate(given, 1):
            statement = statement.replace(f"${n}", value)
        plan = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"))[0]["Plan"]
    return [row["id"] for row in rows], plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


async def test_ended_tasks_before_its_position_are_not_read(house: House, project: str) -> None:
    async with house.superuser() as connection:
        await connection.execute(_TASKS, project, TASKS)
        await connection.execute("INSERT INTO extracted (project, upto) VALUES ($1, $2)", project, TASKS - 2)
    found, pages = await follow(house, project)
    assert found == [f"t-{TASKS - 1}", f"t-{TASKS}"]
    assert pages < 40


async def test_a_restored_record_follows_at_the_position_of_its_restoration(house: House, project: str) -> None:
    async with house.superuser() as connection:
        await connection.execute(_TASKS, project, 9)
        await connection.execute("UPDATE records SET changed = 12 WHERE project = $1 AND id = 't-3'", project)
        await connection.execute("INSERT INTO extracted (project, upto) VALUES ($1, 8)", project)
    found, _ = await follow(house, project)
    assert found == ["t-9", "t-3"]
