"""`counterpoint bench commit`: time of one commit beside the same rows in a raw transaction, and on a large database.

python -m counterpoint.bench.commit [--json] [--rows 1000000] [--samples 200]
"""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from counterpoint import bus
from counterpoint.bench.bench_stack import BenchStack, bench_stack
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.report import BenchReport, Measurement, median_ms, progress
from counterpoint.client import act, decide, put, send
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import TaskSubmitted

RUNS = 3
PROJECT = "bench"
PENDING = 20_000
FRESH_BYTES = 2048

_FILL_RECORDS = """
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
SELECT $1, CASE WHEN n % 2 = 0 THEN 'decisions' ELSE 'runs' END, gen_random_uuid()::text, 1, n, 'manager', 1, 2,
       jsonb_build_object('decision', 'delegate', 'n', n), sha256(n::text::bytea), gen_random_uuid()
FROM generate_series($2::bigint, $3::bigint) AS n
"""
_FILL_PENDING = """
INSERT INTO pending (message_id, project, due_at, timer)
SELECT gen_random_uuid(), $1, now() + interval '1 day', true FROM generate_series(1, $2)
"""
_ADVANCE = "UPDATE raw.projects SET last_seq = last_seq + 5 WHERE project = 'bench' RETURNING last_seq"
_RECORDS = """
INSERT INTO raw.records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
SELECT 'bench', store, gen_random_uuid()::text, 1, $1::bigint - n, 'router', 1, 2, $2::jsonb, sha256('x'),
       gen_random_uuid()
FROM unnest(ARRAY['actions', 'decisions']) WITH ORDINALITY AS w(store, n)
"""
_MESSAGES = """
INSERT INTO raw.messages (project, seq, id, type, subject, audience, body, sender, label, integrity, inbound_id,
                          commit_id)
SELECT 'bench', $1::bigint - 5 + n, gen_random_uuid(), 'a type', 'tasks.bench.submitted', '{}', $2, 'router', 1, 2,
       gen_random_uuid()::text, gen_random_uuid()
FROM generate_series(3, 5) AS n
"""
_PENDING = """
INSERT INTO raw.pending (message_id, project, timer) SELECT gen_random_uuid(), 'bench', false FROM generate_series(1, 3)
"""
_INBOX = """
INSERT INTO raw.inbox (project, consumer, message_id, step, last, fence, outcome, reply)
VALUES ('bench', 'router', gen_random_uuid()::text, 'done', true, 1, 'done', $1::jsonb)
"""
_HEAD = "UPDATE raw.audit_head SET position = position + 1 WHERE shard = '0' RETURNING position"
_AUDIT = """
INSERT INTO raw.audit (position, project, id, kind, body, salt, leaf, chain)
VALUES ($1::bigint, 'bench', gen_random_uuid(), 'commit', $2, sha256('s'), sha256('l'), sha256('c'))
"""


async def service_commit(bench: BenchStack, text: str = "a stub") -> None:
    """Commit two records and three messages through the service. No service consumes the messages."""
    task_id = new_id()
    memory = bench.router.memory(PROJECT, None)
    decision = decide(memory, "router", "route", "answer", text, task_id=task_id)
    routed = act(memory, "router", "route", "a stub", task_id=task_id, decision=decision)
    submitted = TaskSubmitted(
        task_id=task_id, project=PROJECT, kind="question", submitted_by="bench", submitted_at=utc_now()
    )
    writes = (put("actions", routed.action_id, routed),)
    await memory.step(Commit(writes=writes, messages=(send(decision), send(submitted))))


async def raw_commit(bench: BenchStack) -> None:
    """Insert the same rows with one statement per table in one transaction."""
    record, body = bench.postgres, '{"decision": "delegate", "reasoning": "' + "a stub " * 30 + '"}'
    async with record.transaction():
        seq = await record.fetchval(_ADVANCE)
        await record.execute(_RECORDS, seq, body)
        await record.execute(_MESSAGES, seq, body)
        await record.execute(_PENDING)
        await record.execute(_INBOX, body)
        position = await record.fetchval(_HEAD)
        await record.execute(_AUDIT, position, body)


def fresh_text(draw: random.Random) -> str:
    """Return random words: the detector has cached none of them."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-._"
    words: list[str] = []
    while sum(len(word) for word in words) + len(words) < FRESH_BYTES:
        words.append("".join(draw.choices(letters, k=draw.randint(2, 12))))
    return " ".join(words)


async def fill_records(bench: BenchStack, rows: int) -> None:
    """Insert `rows` records of stores that no other tier follows: memory would work on them for minutes beside the
    commits that are measured."""
    for start in range(0, rows, 100_000):
        await bench.postgres.execute(
            _FILL_RECORDS, PROJECT, 10_000_000 + start, 10_000_000 + min(start + 100_000, rows) - 1
        )
    await bench.postgres.execute("ANALYZE records")


async def run(folder: Path, rows: int, samples: int) -> BenchReport:
    """Run all measurements, in `RUNS` interleaved runs."""
    report = BenchReport("commit")
    draw = random.Random(1)
    results: dict[str, list[float]] = {}

    async def measure(name: str, once: Callable[[], Awaitable[None]]) -> None:
        results.setdefault(name, []).append(await median_ms(once, samples))

    async def fresh(texts: list[str]) -> None:
        await service_commit(empty, texts.pop())

    async with bench_stack(folder / "empty") as empty, bench_stack(folder / "full") as full:
        await empty.postgres.execute(Path(__file__).with_name("raw_commit.sql").read_text())
        progress(f"filling {rows} rows")
        await fill_records(full, rows)
        for each in (empty, full):
            await median_ms(partial(service_commit, each), 30)
        for number in range(1, RUNS + 1):
            progress(f"run {number} of {RUNS}")
            await measure("raw", lambda: raw_commit(empty))
            await measure("service", lambda: service_commit(empty))
            texts = [fresh_text(draw) for _ in range(samples)]
            await measure("fresh", partial(fresh, texts))
            await measure("full", lambda: service_commit(full))
            await measure("beside full", lambda: service_commit(empty))
            await empty.postgres.execute(_FILL_PENDING, PROJECT, PENDING)
            await measure("pending", lambda: service_commit(empty))
            await empty.postgres.execute("DELETE FROM pending WHERE timer")
            await measure("beside pending", lambda: service_commit(empty))
            report.note_load()
    runs = {name: tuple(values) for name, values in results.items()}
    report.measures = [
        Measurement(
            "idle commit RPC p50 / raw transaction with the same rows", "ms", runs["service"], 2.0, runs["raw"]
        ),
        Measurement("the same with the detector on 2 KB of fresh text", "ms", runs["fresh"], 2.5, runs["raw"]),
        Measurement(f"commit p50 with {rows} rows / empty", "ms", runs["full"], 1.2, runs["beside full"]),
        Measurement("commit p50 with 20k messages pending / none", "ms", runs["pending"], 1.3, runs["beside pending"]),
    ]
    return report


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=200)
    args = parser.parse_args()
    with bench_folder("commit") as folder:
        bus.run(run(folder, args.rows, args.samples)).show()


if __name__ == "__main__":
    main()
