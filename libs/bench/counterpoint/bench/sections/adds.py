"""Durable adds through the service: one record per commit, a hundred, and with vectors, beside the raw rows."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from counterpoint.bench.bench_stack import BenchStack, bench_stack
from counterpoint.bench.report import BenchReport, Measurement
from counterpoint.bench.sections.size import SectionSize
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.ids import new_id
from counterpoint.proto.ingest import Document
from counterpoint.proto.memory import Commit, Write

PROJECT = "bench"
TOGETHER = 100
WARM = 20

_RAW = Path(__file__).parents[1] / "raw_commit.sql"
_ADVANCE = "UPDATE raw.projects SET last_seq = last_seq + $1 WHERE project = 'bench' RETURNING last_seq"
_RECORDS = """
INSERT INTO raw.records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
SELECT 'bench', 'actions', id, 1, $1::bigint - n, 'router', 1, 2, body::jsonb, sha256('x'), $4::uuid
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS rows (id, body, n)
"""
_MESSAGE = """
INSERT INTO raw.messages (project, seq, id, type, subject, audience, body, sender, label, integrity, inbound_id,
                          commit_id)
VALUES ('bench', $1::bigint, $2::uuid, 'a type', 'changes.bench.router', '{}', $3, 'router', 1, 2, 'x', $2::uuid)
"""
_PENDING = "INSERT INTO raw.pending (message_id, project, timer) VALUES ($1::uuid, 'bench', false)"
_INBOX = """
INSERT INTO raw.inbox (project, consumer, message_id, step, last, fence, outcome, reply)
VALUES ('bench', 'router', $1::uuid::text, 'done', true, 1, 'done', $2::jsonb)
"""
_HEAD = "UPDATE raw.audit_head SET position = position + 1 WHERE shard = '0' RETURNING position"
_AUDIT = """
INSERT INTO raw.audit (position, project, id, kind, body, salt, leaf, chain)
VALUES ($1::bigint, 'bench', $3::uuid, 'commit', $2, sha256('s'), sha256('l'), sha256('c'))
"""
_COUNT = "SELECT count(*) FROM records WHERE project = $1 AND store = $2"


def _write(n: int) -> Write:
    action = new_id()
    reasoning = (
        f"looked at the log of run {n} and found the error {action} there, twice in an hour; nothing else was wrong"
    )
    return Write(
        store="actions",
        id=action,
        body={
            "action_id": action,
            "task_id": "bench",
            "agent": "router",
            "kind": "search",
            "reasoning": reasoning,
            "at": "2026-11-20T12:00:00Z",
        },
    )


async def _ours(bench: BenchStack, count: int) -> None:
    await bench.router.memory(PROJECT, None).step(Commit(writes=tuple(_write(n) for n in range(count))))


async def _raw(bench: BenchStack, count: int) -> None:
    """Insert the rows of one such commit in one transaction, with one statement per table."""
    writes, commit = [_write(n) for n in range(count)], new_id()
    record, reply = bench.postgres, '{"status": "done"}'
    bodies = [write.model_dump_json(include={"body"})[8:-1] for write in writes]
    async with record.transaction():
        seq = await record.fetchval(_ADVANCE, count + 1)
        await record.execute(_RECORDS, seq, [write.id for write in writes], bodies, commit)
        await record.execute(_MESSAGE, seq, commit, "a change" * count)
        await record.execute(_PENDING, commit)
        await record.execute(_INBOX, commit, reply)
        position = await record.fetchval(_HEAD)
        await record.execute(_AUDIT, position, "a leaf " * 20 * count, commit)


async def _per_second(
    add: Callable[[BenchStack, int], Awaitable[None]], bench: BenchStack, count: int, times: int
) -> float:
    """Return the records per second of one client that waits for each commit."""
    began = time.perf_counter()
    for _ in range(times):
        await add(bench, count)
    return count * times / (time.perf_counter() - began)


def _documents(run: int, count: int) -> tuple[Document, ...]:
    """Return documents of ten short passages each."""
    return tuple(
        Document(
            source=f"run-{run}/{n}.md",
            text="\n\n".join(
                f"## Case {run}-{n}-{part}\n\nJob {part} of load {n} in run {run} waits for table {n * part}."
                for part in range(10)
            ),
        )
        for n in range(count)
    )


async def measure(folder: Path, size: SectionSize, report: BenchReport) -> None:
    """Measure adds."""
    alone, bare, many, bare_many, chunks, texts = [], [], [], [], [], []
    async with bench_stack(folder / "stack") as bench:
        await bench.postgres.execute(_RAW.read_text())
        for add in (_ours, _raw):
            await _per_second(add, bench, 1, WARM)
            await _per_second(add, bench, TOGETHER, 1)
        embedder = SearchEngine(None, None)
        await embedder.embed_texts(["warm"])
        person = bench.router.memory(PROJECT, "administrator")
        await person.ingest(_documents(0, 1))
        for run in range(1, size.runs + 1):
            report.note_load()
            alone.append(await _per_second(_ours, bench, 1, size.adds))
            bare.append(await _per_second(_raw, bench, 1, size.adds))
            many.append(await _per_second(_ours, bench, TOGETHER, size.batches))
            bare_many.append(await _per_second(_raw, bench, TOGETHER, size.batches))
            documents = _documents(run, max(1, size.batches // 4))
            before = await bench.postgres.fetchval(_COUNT, PROJECT, "chunks")
            began = time.perf_counter()
            await person.ingest(documents)
            took = time.perf_counter() - began
            made = await bench.postgres.fetchval(_COUNT, PROJECT, "chunks") - before
            chunks.append(made / took)
            stored = [each["body"] for each in await bench.postgres.fetch(_TEXTS, PROJECT, made)]
            began = time.perf_counter()
            await embedder.embed_texts(stored)
            texts.append(made / (time.perf_counter() - began))
    report.measures += [
        Measurement("adds, one per commit, one client", "1/s", tuple(alone), 500, at_least=True),
        Measurement("the same / raw rows in one transaction", "1/s", tuple(alone), None, tuple(bare)),
        Measurement(f"adds, {TOGETHER} per commit, one client", "1/s", tuple(many), 4_000, at_least=True),
        Measurement("the same / raw rows in one transaction", "1/s", tuple(many), None, tuple(bare_many)),
        Measurement("passages ingested, with vectors / the model alone", "1/s", tuple(chunks), None, tuple(texts)),
    ]


_TEXTS = """
SELECT body ->> 'text' AS body FROM records WHERE project = $1 AND store = 'chunks' ORDER BY seq DESC LIMIT $2
"""
