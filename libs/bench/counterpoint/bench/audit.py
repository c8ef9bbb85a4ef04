"""Time to sequence, verify and prove a long audit log, beside a plain read of it.

python -m counterpoint.bench.audit [--json] [--leaves 1000000] [--projects 10]
"""

import asyncio
import hashlib
import random
import time
from pathlib import Path
from typing import Any

import asyncpg

from counterpoint import bus
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.report import BenchReport, Measurement, p50, p99, progress
from counterpoint.local.postgres import run_postgres
from counterpoint.memory.audit.auditor import Auditor
from counterpoint.memory.audit.export import CheckpointFile
from counterpoint.memory.audit.note import NoteKey
from counterpoint.memory.audit.sequencer import Sequencer
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.migrate import migrate
from counterpoint.proto.memory import Prove, Verify

RUNS = 3
PROOFS = 300
STEP = 50_000
TASK_LEAVES = 8
PROJECT = "bench-0"

_FILL = """
INSERT INTO audit (project, id, kind, task_id, body, salt, seq)
SELECT 'bench-' || n / $3 % $4, gen_random_uuid(), 'commit', 't-' || n / $3,
       jsonb_build_object(
           'commit', gen_random_uuid(), 'service', 'developer', 'message', gen_random_uuid(), 'step', 'done',
           'principal', NULL, 'task', 't-' || n / $3, 'writes', '[]'::jsonb, 'at', '2026-11-20T12:00:00+00:00',
           'messages', jsonb_build_array(
               jsonb_build_array(gen_random_uuid(), 'counterpoint.task.worked.v1', encode(sha256('w'), 'hex')),
               jsonb_build_array(gen_random_uuid(), 'counterpoint.records.changed.v1', encode(sha256('r'), 'hex'))),
           'reads', jsonb_build_array(jsonb_build_array('chunks', gen_random_uuid(), 1)))::text,
       decode(md5(n::text), 'hex'), n
FROM generate_series($1::bigint, $2::bigint) AS n
"""
_PROJECTS = "INSERT INTO projects (project) SELECT 'bench-' || n FROM generate_series(0, $1::int - 1) AS n"
_RAW = "SELECT salt || coalesce(previous, '') || convert_to(body, 'UTF8') AS content, leaf FROM audit ORDER BY position"


async def read_and_hash(superuser: Any) -> float:
    """Return the seconds to read every leaf and hash it once."""
    began = time.perf_counter()
    async with superuser.transaction():
        async for row in superuser.cursor(_RAW, prefetch=1000):
            hashlib.sha256(row["content"]).digest()
    return time.perf_counter() - began


class LoopDelay:
    """Delay of the event loop: time beyond the end of a short sleep."""

    def __init__(self) -> None:
        self.delays_ms: list[float] = []

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.perf_counter() + 0.005
            await asyncio.sleep(0.005)
            self.delays_ms.append((time.perf_counter() - due) * 1000)


async def run(folder: Path, leaves: int, projects: int) -> BenchReport:
    """Run the benchmark on a PostgreSQL of its own."""
    report = BenchReport("audit")
    async with run_postgres(folder / "postgres") as postgres:
        await migrate(postgres.urls.owner)
        database = Database(postgres.urls.memory, pool_size=4, connect_timeout_s=5)
        await database.open()
        superuser = await asyncpg.connect(postgres.urls.admin.removesuffix("/postgres") + "/counterpoint")
        try:
            copies = (CheckpointFile(folder),)
            sequencer = Sequencer(database, NoteKey("5e" * 32), copies)
            auditor = Auditor(database, sequencer, copies)
            await superuser.execute(_PROJECTS, projects)
            rates = []
            for start in range(0, leaves, STEP):
                end = min(start + STEP, leaves)
                await superuser.execute(_FILL, start, end - 1, TASK_LEAVES, projects)
                began = time.perf_counter()
                await sequencer.once()
                rates.append((end - start) / (time.perf_counter() - began))
                progress(f"{end} leaves, sequenced at {rates[-1]:.0f}/s")
            await superuser.execute("VACUUM ANALYZE audit")
            raws, verified, late, proofs, worst = [], [], [], [], []
            draw = random.Random(1)
            for number in range(1, RUNS + 1):
                progress(f"run {number} of {RUNS}")
                raws.append(await read_and_hash(superuser))
                delay = LoopDelay()
                watching = asyncio.create_task(delay.watch())
                began = time.perf_counter()
                verdict = await auditor.answer(PROJECT, Verify())
                verified.append(time.perf_counter() - began)
                watching.cancel()
                late.append(p99(delay.delays_ms))
                assert verdict["ok"], verdict["broken"]
                each = []
                for _ in range(PROOFS):
                    task = draw.randrange(leaves // TASK_LEAVES // projects) * projects
                    began = time.perf_counter()
                    proved = await auditor.answer(PROJECT, Prove(task_id=f"t-{task}", limit=1))
                    each.append((time.perf_counter() - began) * 1000)
                    assert len(proved["leaves"]) == 1
                proofs.append(p50(each))
                worst.append(p99(each))
                report.note_load()
        finally:
            await superuser.close()
            await database.close()
    report.measures = [
        Measurement(f"verify {leaves} leaves", "s", tuple(verified), 10.0),
        Measurement("the same / a plain read and hash of them", "s", tuple(verified), None, tuple(raws)),
        Measurement("event loop delay meanwhile, p99", "ms", tuple(late), None),
        Measurement("a proof, p50", "ms", tuple(proofs), 1.0),
        Measurement("a proof, p99", "ms", tuple(worst), None),
        Measurement("leaves sequenced a second", "1/s", tuple(rates[-RUNS:]), None, at_least=True),
    ]
    return report


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("--leaves", type=int, default=1_000_000)
    parser.add_argument("--projects", type=int, default=10)
    args = parser.parse_args()
    with bench_folder("audit") as folder:
        (bus.run(run(folder, args.leaves, args.projects))).show()


if __name__ == "__main__":
    main()
