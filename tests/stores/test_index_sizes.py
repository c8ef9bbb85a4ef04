"""Indexes of ids stay as small as if they were built anew, while several projects write at the same time."""

from pathlib import Path

import asyncpg

from counterpoint.local.postgres import run_postgres
from counterpoint.memory.record.migrate import migrate
from counterpoint.proto.ids import new_id

INDEXES = (
    "records_by_task",
    "records_by_commit",
    "records_by_decision",
    "history_by_commit",
    "messages_by_task",
    "audit_by_id",
    "audit_by_task",
    "read_sets_pkey",
)
TASKS, BATCH = 3000, 10
_WRITTEN = """
WITH given AS (
    SELECT 'p-' || n % 5 AS project, commit, commit::text AS task, $2::bigint + n AS seq
    FROM unnest($1::uuid[]) WITH ORDINALITY AS each (commit, n)),
line AS (
    INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, commit_id, decision_id,
                         decision)
    SELECT project, 'actions', 'a-' || k || task, 1, 10 * seq + k, task, 'router', 1, 1, commit, task || k, '{}'
    FROM given, generate_series(1, 3) AS k),
superseded AS (
    INSERT INTO history (project, store, id, version, seq, author, label, integrity, commit_id)
    SELECT project, 'tasks', task, 1, seq, 'manager', 1, 1, commit FROM given),
sent AS (
    INSERT INTO messages (project, seq, id, type, subject, task_id, audience, body, sender, label, integrity,
                          inbound_id, commit_id)
    SELECT project, seq, commit, '', '', task, '{}', '{}', '', 1, 1, '', commit FROM given),
attested AS (
    INSERT INTO audit (project, id, kind, task_id, position)
    SELECT project, commit, 'commit', task, seq FROM given)
INSERT INTO read_sets (project, commit_id, reads) SELECT project, commit, '[]' FROM given
"""


async def test_indexes_of_ids_are_as_small_as_new_ones(tmp_path: Path) -> None:
    async with run_postgres(tmp_path / "postgres") as postgres:
        await migrate(postgres.urls.owner)
        connection = await asyncpg.connect(postgres.urls.admin, database="counterpoint")
        try:
            for n in range(0, TASKS, BATCH):
                await connection.execute(_WRITTEN, [new_id() for _ in range(BATCH)], n)
            size = "SELECT pg_relation_size($1::text::regclass)"
            grown = {name: await connection.fetchval(size, name) for name in INDEXES}
            for table in ("records", "history", "messages", "audit", "read_sets"):
                await connection.execute(f"REINDEX TABLE {table}")
            new = {name: await connection.fetchval(size, name) for name in INDEXES}
        finally:
            await connection.close()
    assert {name: grown[name] / new[name] for name in INDEXES if grown[name] > 1.3 * new[name]} == {}
