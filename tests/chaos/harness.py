"""Tasks through the whole house while its parts are killed; what is lost or doubled is counted from outside.

    python tests/chaos/harness.py --tasks 1000 --kills 200 --seeds 5

Five services, NATS, PostgreSQL and the supervisor itself are killed by SIGKILL, at random moments and at every named
await (`house.AWAITS`), and the bus loses all that is ours. Tasks come in by HTTP and by NATS, outcomes by HTTP,
documents are ingested all the while.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from chaos.counts import HEADER, Result, count, row
from chaos.faults import NUDGES, House, kills_of
from chaos.house import AWAITS
from chaos.load import Job, jobs_of
from chaos.outside import Follower, OutsideSystem

KNOWLEDGE = Path(__file__).parents[2] / "examples" / "knowledge"
IN_PARALLEL = 12
FOLLOWED = 10
"""Every so many tasks one is followed by a stream of its own that resumes where it broke."""
STUCK_AFTER_S = 90.0
"""A task is lost when nothing at all has come to its end for so long."""


class Run:
    """One seed."""

    def __init__(
        self, house: House, outside: OutsideSystem, seed: int, tasks: int, kills: int, say: Callable[[str], None]
    ) -> None:
        self._say = say
        self._house = house
        self._outside = outside
        self._choose = random.Random(seed)
        self._load = jobs_of(self._choose)
        self._jobs = list(islice(self._load, tasks))
        self._kills = kills_of(kills, self._choose)
        self._work: list[asyncio.Task[None]] = []
        self._held = tasks
        self._gate = asyncio.Semaphore(IN_PARALLEL)
        self._places = asyncio.Semaphore(IN_PARALLEL)
        self._unsettled: dict[str, str] = {}
        self._done = asyncio.Event()
        self.result = Result(seed=seed, tasks=tasks)

    async def run(self) -> Result:
        """The load under fire, then the count."""
        began = time.monotonic()
        for path in sorted(KNOWLEDGE.rglob("*.md")):
            await self._ingest(str(path.relative_to(KNOWLEDGE)), path.read_text())
        decisions = Follower(self._outside, "/v1/decisions/stream")
        followers = [Follower(self._outside, f"/v1/tasks/{job.task_id}/events") for job in self._jobs[::FOLLOWED]]
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(each.run()) for each in (decisions, *followers)]
            background.append(group.create_task(self._keep_ingesting()))
            await asyncio.sleep(1)
            self._work += [group.create_task(self._through(job)) for job in self._jobs]
            await self._destroy(group)
            self._say("the last kill is done")
            while self._held:
                self._release()
            self.result.tasks = len(self._jobs)
            await _drained(self._work)
            self.result.lost += [f"{job.task_id}: {self._unsettled[job.task_id]}" for job in self._unfinished()]
            for task in self._work:
                task.cancel()
            self._done.set()
            self._say("counting")
            await count(self.result, self._outside, self._jobs, decisions, followers)
            for task in background:
                task.cancel()
        self.result.seconds = time.monotonic() - began
        self.result.load = os.getloadavg()[0]
        return self.result

    def _unfinished(self) -> list[Job]:
        return [job for job in self._jobs if job.task_id in self._unsettled]

    async def _through(self, job: Job) -> None:
        """One task from submission to its end, with its outcomes."""
        self._unsettled[job.task_id] = "not submitted"
        await self._gate.acquire()
        async with self._places:
            self._unsettled[job.task_id] = "submitted"
            await self._outside.submit(job)
            self._unsettled[job.task_id] = "accepted"
            await self._settled(job.task_id, lambda task: True)
            for attempt, outcome in enumerate(job.outcomes, 1):
                task = await self._settled(job.task_id, lambda task: True)
                if task.get("waiting_for") != "outcome" or task.get("attempt") != attempt:
                    break  # an escalated task has no attempt of this number to report on
                self._unsettled[job.task_id] = f"attempt {attempt} {outcome}"
                await self._outside.report(job.task_id, attempt, outcome)
                await self._settled(job.task_id, lambda task, n=attempt: str(n) in task.get("outcomes", {}))
        del self._unsettled[job.task_id]

    async def _settled(self, task_id: str, also: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            response = await self._outside.ask("GET", f"/v1/tasks/{task_id}", params={"wait": 10})
            if response.status_code == 200:
                task: dict[str, Any] = response.json()
                self._unsettled[task_id] = (
                    f"{task['state']} {task.get('waiting_for') or ''}, attempt {task.get('attempt')}, "
                    f"resolution {task.get('resolution')}, outcomes {task.get('outcomes')}"
                )
                if task["state"] in ("completed", "input_required", "failed") and also(task):
                    return task
            await asyncio.sleep(0.1)

    async def _destroy(self, group: asyncio.TaskGroup) -> None:
        per_kill = len(self._jobs) / max(len(self._kills), 1) / 2
        released = 0.0
        for n, name in enumerate(self._kills, 1):
            self._say(f"{n}/{len(self._kills)} {name}, {len(self._unfinished())} tasks to go")
            released += per_kill
            while released >= 1:
                self._release()
                released -= 1
            await asyncio.sleep(self._choose.uniform(0.1, 1.2))
            if name in AWAITS:
                if not await self._reached(name, group):
                    self.result.unreached.append(name)
                    continue
                if name in NUDGES:
                    self.result.kills[NUDGES[name]] += 1
            else:
                await self._house.kill(name)
            self.result.kills[name] += 1

    def _release(self) -> None:
        """Let one more task begin, if one is held."""
        if self._held:
            self._held -= 1
            self._gate.release()

    async def _reached(self, name: str, group: asyncio.TaskGroup) -> bool:
        """Kill at a named await; tasks come in until it is passed, more than were planned if it takes those."""
        killing = asyncio.create_task(self._house.kill_at(name, self._choose.randrange(4)))
        while not killing.done():
            if not self._places.locked():
                if not self._held:
                    self._add(next(self._load), group)
                self._release()
            await asyncio.wait({killing}, timeout=1.0)
        return killing.result()

    def _add(self, job: Job, group: asyncio.TaskGroup) -> None:
        self._jobs.append(job)
        self._work.append(group.create_task(self._through(job)))
        self._held += 1

    async def _ingest(self, source: str, text: str) -> None:
        response = await self._outside.ask("POST", "/v1/documents", json={"source": source, "text": text})
        assert response.status_code == 200, response.text

    async def _keep_ingesting(self) -> None:
        n = 0
        while not self._done.is_set():
            n += 1
            await self._ingest(
                f"kitchen/{n % 7}.md", f"# Kitchen\n\nOn day {n} the kettle of floor {n % 7} was descaled.\n"
            )
            await asyncio.sleep(0.4)


async def _drained(work: list[asyncio.Task[None]]) -> None:
    """Return when all of it is done, or nothing has moved for long."""
    pending = set(work)
    while pending:
        done, pending = await asyncio.wait(pending, timeout=STUCK_AFTER_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return


async def run(
    folder: Path, seed: int, tasks: int, kills: int, say: Callable[[str], None] = lambda said: None
) -> Result:
    """One seed on a stack of its own in `folder`; `say` is told how far it has come."""
    house = House(folder)
    await house.start()
    outside = OutsideSystem(house.endpoints(), f"chaos-{seed}")
    try:
        await outside.open()
        return await Run(house, outside, seed, tasks, kills, say).run()
    finally:
        await outside.close()
        await house.stop()


def main() -> None:
    """The program: exit code 1 when anything was lost, doubled, not learned, dead, or changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=1, help="how many runs, with the seeds 1, 2, ...")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep data and logs below this folder")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    results = []
    if not given.json:
        print(HEADER, flush=True)
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        with tempfile.TemporaryDirectory(prefix="counterpoint-chaos-") as folder:
            place = given.keep / str(seed) if given.keep else Path(folder)
            place.mkdir(parents=True, exist_ok=True)
            results.append(asyncio.run(run(place, seed, given.tasks, given.kills, _progress)))
        if not given.json:
            _print(results[-1])
    if given.json:
        print(json.dumps([vars(result) for result in results]))
    sys.exit(0 if all(result.ok for result in results) else 1)


def _progress(said: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {said}", file=sys.stderr, flush=True)


def _print(result: Result) -> None:
    print(row(result), flush=True)
    for name in ("lost", "doubled", "unlearned", "dead", "unreached"):
        for line in getattr(result, name)[:20]:
            print(f"seed {result.seed} {name}: {line}")


if __name__ == "__main__":
    main()
