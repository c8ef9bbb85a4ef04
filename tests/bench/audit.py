"""`bench audit`: how long it takes to order, to verify and to prove a long audit log, beside a plain read of it.

python tests/bench/audit.py [--json] [--leaves 1000000] [--projects 10]
"""

import argparse
import asyncio
import hashlib
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.measure import Measure, Report, p50, p99, quiet_logs, say, stop_when_told

from counterpoint import bus
from counterpoint.local.postgres import run_postgres
from counterpoint.memory.audit.auditor import Auditor
from counterpoint.memory.audit.export import File
from counterpoint.memory.audit.note import NoteKey
from counterpoint.memory.audit.sequencer import Sequencer
from counterpoint.memory.database import Database
from counterpoint.memory.migrate import migrate
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
_RAW = "SELECT salt || coalesce(previous, '') || convert_to(body, 'UTF8') AS said, leaf FROM audit ORDER BY position"


async def raw(superuser: Any) -> float:
    """Seconds to read every leaf and hash it once, and no more."""
    began = time.perf_counter()
    async with superuser.transaction():
        async for row in superuser.cursor(_RAW, prefetch=1000):
            hashlib.sha256(row["said"]).digest()
    return time.perf_counter() - began


class Idle:
    """How late this process comes to its own turn while something else goes on."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            due = time.perf_counter() + 0.005
            await asyncio.sleep(0.005)
            self.late_ms.append((time.perf_counter() - due) * 1000)


async def run(folder: Path, leaves: int, projects: int) -> Report:
    """Everything."""
    report = Report("audit")
    async with run_postgres(folder / "postgres") as postgres:
        await migrate(postgres.urls.owner)
        database = Database(postgres.urls.memory, pool_size=4, connect_timeout_s=5)
        await database.open()
        superuser = await asyncpg.connect(postgres.urls.admin.removesuffix("/postgres") + "/counterpoint")
        try:
            copies = (File(folder),)
            sequencer = Sequencer(database, NoteKey("5e" * 32), copies)
            auditor = Auditor(database, sequencer, copies)
            await superuser.execute(_PROJECTS, projects)
            took = []
            for start in range(0, leaves, STEP):
                end = min(start + STEP, leaves)
                await superuser.execute(_FILL, start, end - 1, TASK_LEAVES, projects)
                began = time.perf_counter()
                await sequencer.once()
                took.append((end - start) / (time.perf_counter() - began))
                say(f"{end} leaves, ordered at {took[-1]:.0f}/s")
            await superuser.execute("VACUUM ANALYZE audit")
            raws, verified, late, proofs, worst = [], [], [], [], []
            choose = random.Random(1)
            for number in range(1, RUNS + 1):
                say(f"run {number} of {RUNS}")
                raws.append(await raw(superuser))
                idle = Idle()
                watching = asyncio.create_task(idle.watch())
                began = time.perf_counter()
                checked = await auditor.answer(PROJECT, Verify())
                verified.append(time.perf_counter() - began)
                watching.cancel()
                late.append(p99(idle.late_ms))
                assert checked["ok"], checked["broken"]
                each = []
                for _ in range(PROOFS):
                    task = choose.randrange(leaves // TASK_LEAVES // projects) * projects
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
        Measure(f"verify {leaves} leaves", "s", tuple(verified), 10.0),
        Measure("the same / a plain read and hash of them", "s", tuple(verified), None, tuple(raws)),
        Measure("this process late meanwhile, p99", "ms", tuple(late), None),
        Measure("a proof, p50", "ms", tuple(proofs), 1.0),
        Measure("a proof, p99", "ms", tuple(worst), None),
        Measure("leaves ordered a second", "1/s", tuple(took[-RUNS:]), None, floor=True),
    ]
    return report


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaves", type=int, default=1_000_000)
    parser.add_argument("--projects", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        (bus.run(run(Path(folder), given.leaves, given.projects))).show()


if __name__ == "__main__":
    main()
