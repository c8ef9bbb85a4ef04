"""`bench commit`: what one commit costs over the same rows in a raw transaction, and whether size slows it down.

python tests/bench/commit.py [--json] [--rows 1000000] [--samples 200]
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.measure import Measure, Report, p50, quiet_logs, say, stop_when_told
from bench.small import Small, small

from counterpoint import bus
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import TaskSubmitted
from counterpoint.recall import act, decide, put, send

RUNS = 3
PROJECT = "bench"
PENDING = 20_000
FRESH_BYTES = 2048

_FILL = """
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
SELECT $1, CASE WHEN n % 2 = 0 THEN 'decisions' ELSE 'actions' END, gen_random_uuid()::text, 1, n, 'manager', 1, 2,
       jsonb_build_object('decision', 'delegate', 'n', n), sha256(n::text::bytea), gen_random_uuid()
FROM generate_series($2::bigint, $3::bigint) AS n
"""
_WAITING = """
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


async def timed_ms(once: Callable[[], Awaitable[None]], samples: int) -> float:
    """The p50 of one after the other, in milliseconds."""
    took = []
    for _ in range(samples):
        began = time.perf_counter()
        await once()
        took.append((time.perf_counter() - began) * 1000)
    return p50(took)


async def commit(place: Small, text: str = "a toy") -> None:
    """Two records and three messages, none of which anybody works on."""
    task_id = new_id()
    memory = place.router.memory(PROJECT, None)
    decision = decide(memory, "router", "route", "answer", text, task_id=task_id)
    routed = act(memory, "router", "route", "a toy", task_id=task_id, decision=decision)
    submitted = TaskSubmitted(
        task_id=task_id, project=PROJECT, kind="question", submitted_by="bench", submitted_at=utc_now()
    )
    writes = (put("actions", routed.action_id, routed),)
    await memory.step(Commit(writes=writes, messages=(send(decision), send(submitted))))


async def raw_commit(place: Small) -> None:
    """The same rows, a statement per table in one transaction."""
    record, body = place.record, '{"decision": "delegate", "reasoning": "' + "a toy " * 30 + '"}'
    async with record.transaction():
        seq = await record.fetchval(_ADVANCE)
        await record.execute(_RECORDS, seq, body)
        await record.execute(_MESSAGES, seq, body)
        await record.execute(_PENDING)
        await record.execute(_INBOX, body)
        position = await record.fetchval(_HEAD)
        await record.execute(_AUDIT, position, body)


def fresh_text(choose: random.Random) -> str:
    """Words nobody has seen before, as the detector likes them least."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-._"
    words = []
    while sum(map(len, words)) + len(words) < FRESH_BYTES:
        words.append("".join(choose.choices(letters, k=choose.randint(2, 12))))
    return " ".join(words)


async def fill(place: Small, rows: int) -> None:
    """So many records more."""
    for start in range(0, rows, 100_000):
        await place.record.execute(_FILL, PROJECT, 10_000_000 + start, 10_000_000 + min(start + 100_000, rows) - 1)
    await place.record.execute("ANALYZE records")


async def run(folder: Path, rows: int, samples: int) -> Report:
    """Everything, in three interleaved runs."""
    report = Report("commit")
    choose = random.Random(1)
    found: dict[str, list[float]] = {}

    async def measure(name: str, once: Callable[[], Awaitable[None]]) -> None:
        found.setdefault(name, []).append(await timed_ms(once, samples))

    async with small(folder / "empty") as empty, small(folder / "full") as full:
        await empty.record.execute(Path(__file__).with_name("raw_commit.sql").read_text())
        say(f"filling {rows} rows")
        await fill(full, rows)
        for place in (empty, full):
            await timed_ms(lambda place=place: commit(place), 30)
        for number in range(1, RUNS + 1):
            say(f"run {number} of {RUNS}")
            await measure("raw", lambda: raw_commit(empty))
            await measure("rule", lambda: commit(empty))
            texts = [fresh_text(choose) for _ in range(samples)]
            await measure("fresh", lambda texts=texts: commit(empty, texts.pop()))
            await measure("full", lambda: commit(full))
            await measure("beside full", lambda: commit(empty))
            await empty.record.execute(_WAITING, PROJECT, PENDING)
            await measure("pending", lambda: commit(empty))
            await empty.record.execute("DELETE FROM pending WHERE timer")
            await measure("beside pending", lambda: commit(empty))
            report.note_load()
    runs = {name: tuple(values) for name, values in found.items()}
    report.measures = [
        Measure("idle commit RPC p50 / raw transaction with the same rows", "ms", runs["rule"], 2.0, runs["raw"]),
        Measure("the same with the detector on 2 KB of fresh text", "ms", runs["fresh"], 3.0, runs["raw"]),
        Measure(f"commit p50 with {rows} rows / empty", "ms", runs["full"], 1.2, runs["beside full"]),
        Measure("commit p50 with 20k messages pending / none", "ms", runs["pending"], 1.3, runs["beside pending"]),
    ]
    return report


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        bus.run(run(Path(folder), given.rows, given.samples)).show()


if __name__ == "__main__":
    main()
