"""mem0, the store of LangGraph and Counterpoint on the same workload, each on a PostgreSQL of its own.

python -m counterpoint.bench.peers.run [PYTHON] [--items 10000]

PYTHON is the interpreter of an environment with the peers (`make peers` makes a temporary one). A peer that is missing
is reported as `not run`. All vectors are made by our model before the measurements.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.bench.bench_stack import BenchStack, bench_stack
from counterpoint.bench.peers.work import UPDATES, K, PeerWorkload
from counterpoint.bench.report import exit_on_sigterm, log_warnings_only, progress
from counterpoint.bench.service_documents import port_question, service_names
from counterpoint.local.postgres import run_postgres
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.errors import Conflict
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, Get, VectorSearch, Write

TENANTS = 100
QUESTIONS = 200
SEEDS = 1_000
PEERS = {"mem0": "mem0_peer.py", "langgraph": "langgraph_peer.py"}

_RECORDS = """
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, sha256, commit_id)
SELECT tenant, 'attempts', 'a-' || n, 1, n, 'developer', 1, 2, jsonb_build_object('tried', said), sha256('x'),
       gen_random_uuid()
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS given (tenant, said, n)
"""
_VECTORS = """
INSERT INTO vectors (project, store, id, version, source, label, model, lexemes, embedding)
SELECT tenant, 'attempts', 'a-' || n, 1, 'a-' || n, 1, $4, to_tsvector('english', said), e::vector
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS given (tenant, said, e, n)
"""


async def create_workload(items: int) -> PeerWorkload:
    """Return items of a hundred tenants: mixtures of sentences, with mixed vectors."""
    choose, search = random.Random(11), SearchEngine(None, None)
    seeds = [f"The {name} service was restarted and listened on its port again." for name in service_names(SEEDS)]
    seed_vectors = await search.embed_texts(seeds)
    vectors: dict[str, list[float]] = {}
    items_made = []
    for n in range(items):
        first, second = choose.randrange(SEEDS), choose.randrange(SEEDS)
        text = f"{n}: {seeds[first]} {seeds[second]}"
        mixed = seed_vectors[first] + 0.6 * seed_vectors[second]
        vectors[text] = [round(float(x), 6) for x in mixed / np.linalg.norm(mixed)]
        items_made.append((f"tenant-{n % TENANTS}", text))
    services = service_names(SEEDS)
    questions = [
        (f"tenant-{choose.randrange(TENANTS)}", f"{n}: {port_question(choose.choice(services))}")
        for n in range(QUESTIONS)
    ]
    for (_, text), vector in zip(questions, await search.embed_texts([text for _, text in questions]), strict=True):
        vectors[text] = [float(x) for x in vector]
    best = []
    for tenant, text in questions:
        tenant_items = [item for where, item in items_made if where == tenant]
        cosines = np.array([vectors[item] for item in tenant_items]) @ np.array(vectors[text])
        best.append([tenant_items[n] for n in np.argsort(-cosines)[:K]])
    return PeerWorkload(items_made, questions, vectors, best)


async def counterpoint(folder: Path, work: PeerWorkload) -> dict[str, Any]:
    """Run the workload through bus and memory service, with policy, audit and provenance. Each add is one commit."""
    search = SearchEngine(None, None)
    async with bench_stack(folder / "stack") as bench:
        began = time.perf_counter()
        for tenant, text in work.items[:2000]:
            record = new_id()
            body = {
                "action_id": record,
                "task_id": "t-1",
                "agent": "router",
                "kind": "route",
                "reasoning": text,
                "at": "2026-01-01T00:00:00Z",
            }
            write = Write(store="actions", id=record, body=body)
            await bench.router.memory(tenant, None).step(Commit(writes=(write,)))
        report: dict[str, Any] = {"adds_a_second": min(2000, len(work.items)) / (time.perf_counter() - began)}
        columns = [tenant for tenant, _ in work.items], [text for _, text in work.items]
        await bench.postgres.execute(_RECORDS, *columns)
        vectors = [str(work.vectors[text]) for _, text in work.items]
        await bench.postgres.execute(_VECTORS, *columns, vectors, search.model_id)
        await bench.postgres.execute("VACUUM ANALYZE records, vectors, meanings, postings, lexicon")
        took, recall = [], 0.0
        for (tenant, text), best in zip(work.questions, work.best, strict=True):
            memory = bench.router.memory(tenant, None)
            began = time.perf_counter()
            (found,) = await memory.query(VectorSearch(store="attempts", text=text, k=K))
            took.append((time.perf_counter() - began) * 1000)
            recall += len({each.body["tried"] for each in found.items} & set(best)) / len(best)
        report |= {"recall": recall / len(work.questions), "search_p50_ms": sorted(took)[len(took) // 2]}
        report["updates_lost"] = await _lost_updates(bench)
        (foreign,) = await bench.router.memory("tenant-1", None).query(Get(store="submissions", id="one"))
        report["foreign_read_by_id"] = bool(foreign.items)
    return report


async def _lost_updates(bench: BenchStack) -> int:
    """Return the lost updates of eight clients that increment one record and retry on `Conflict`."""
    first = Write(store="submissions", id="one", body={"n": 0})
    await bench.router.memory("tenant-0", None).step(Commit(writes=(first,)))
    gate = asyncio.Semaphore(8)

    async def increment() -> None:
        async with gate:
            while True:
                memory = bench.router.memory("tenant-0", None)
                known = await memory.get("submissions", "one")
                assert known is not None
                write = Write(store="submissions", id="one", body={"n": known.body["n"] + 1}, expect=known.version)
                try:
                    await memory.step(Commit(writes=(write,)))
                except Conflict:
                    continue
                return

    await asyncio.gather(*(increment() for _ in range(UPDATES)))
    last = await bench.router.memory("tenant-0", None).get("submissions", "one")
    assert last is not None
    return UPDATES - int(last.body["n"])


async def peer(folder: Path, python: str, program: str, file: Path) -> dict[str, Any]:
    """Return the figures of a peer, or the reason that it did not run."""
    async with run_postgres(folder / "postgres") as postgres:
        call = [python, str(Path(__file__).with_name(program)), postgres.urls.admin, str(file)]
        done = await asyncio.to_thread(subprocess.run, call, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"not run": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


async def run(folder: Path, python: str, items: int) -> dict[str, dict[str, Any]]:
    """Run the workload on each store, one after the other."""
    progress(f"{items} items of {TENANTS} tenants, {QUESTIONS} questions")
    work, file = await create_workload(items), folder / "work.json"
    work.write(file)
    report = {}
    for name, program in PEERS.items():
        progress(name)
        (folder / name).mkdir()
        report[name] = await peer(folder / name, python, program, file)
    progress("counterpoint")
    report["counterpoint"] = await counterpoint(folder, work)
    return report


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="?", default=sys.executable)
    parser.add_argument("--items", type=int, default=10_000)
    args = parser.parse_args()
    log_warnings_only()
    exit_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="counterpoint-peers-") as folder:
        print(json.dumps(asyncio.run(run(Path(folder), args.python, args.items)), indent=1))


if __name__ == "__main__":
    main()
