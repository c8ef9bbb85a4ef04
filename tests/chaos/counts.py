"""The counts: what is in the log, in the lists and in the streams, against what there must be."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.house import AWAITS
from chaos.load import Job
from chaos.outside import Follower, LogReader, OutsideSystem, key_of

_DECISION = "counterpoint.decision.made.v1"


@dataclass
class Result:
    """Result of one seed. Every list is empty when all is well."""

    seed: int
    tasks: int
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unlearned: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    verified: bool = False
    leaves: int = 0
    messages: int = 0
    seen_live: int = 0
    load: float = 0.0

    @property
    def ok(self) -> bool:
        """Nothing lost, nothing doubled, every outcome learned, nothing dead, the audit log whole."""
        return self.verified and not (self.lost or self.doubled or self.unlearned or self.dead)


async def count(
    result: Result, outside: OutsideSystem, jobs: Sequence[Job], decisions: Follower, followers: Sequence[Follower]
) -> None:
    """Fill in the result once the load has come to its end; `decisions` and `followers` have read all the while."""
    await _lists(result, outside, jobs)
    places = asyncio.Semaphore(20)

    async def log_of(job: Job) -> LogReader:
        reader = LogReader(outside, f"/v1/tasks/{job.task_id}/events")
        async with places:
            await reader.run(quiet_s=2.0)
        return reader

    logs = await asyncio.gather(*(log_of(job) for job in jobs))
    log: Counter[tuple[str, str, Any]] = Counter()
    decided: set[str] = set()
    for reader in logs:
        result.messages += len(reader.events)
        for event in reader.events:
            if event["type"] == _DECISION:
                decided.add(event["id"])
            else:
                log[key_of(event["type"], event["data"])] += 1
    reassessed = Counter((task, attempt) for (task, kind, attempt) in log if str(attempt).endswith("reassess"))
    wiped = result.kills["bus"]  # what was not finished then is published, and seen live, once more
    for counted, where, again in ((log, "in the log", 0), (outside.live, "seen live", wiped)):
        for key, n in counted.items():
            allowed = max(1, outside.asked[key]) + again
            if str(key[2]).endswith("reassess"):
                continue  # as often as something is ingested while the task waits
            if key[1] == "counterpoint.task.worked.v1":
                allowed += reassessed[key[0], f"{key[2]} reassess"]
            if n > allowed:
                result.doubled.append(f"{key} {n} times {where}")
    result.seen_live = sum(outside.live.values())
    types: dict[str, set[str]] = defaultdict(set)
    for task, kind, _ in log:
        types[task].add(kind.split(".")[2])
    for job in jobs:
        missing = {"submitted", "routed", "delegated", "worked"} - types[job.task_id]
        if missing:
            result.lost.append(f"{job.task_id}: no {', '.join(sorted(missing))} in the log")
    by_path = {f"/v1/tasks/{job.task_id}/events": reader for job, reader in zip(jobs, logs, strict=True)}
    await asyncio.sleep(3)
    for follower in (decisions, *followers):
        result.doubled += [problem for problem in follower.problems if "gap" not in problem]
        result.lost += [problem for problem in follower.problems if "gap" in problem]
    result.lost += [f"decision {each} in no resumed stream" for each in sorted(decided - set(decisions.ids))]
    for follower in followers:
        expected = by_path[follower.path].ids
        if follower.ids != expected:
            result.lost.append(f"{follower.path}: the resumed stream showed {len(follower.ids)} of {len(expected)}")


async def _lists(result: Result, outside: OutsideSystem, jobs: Sequence[Job]) -> None:
    listed = {task["task_id"]: task for task in await _all(outside, "/v1/tasks")}
    result.lost += [f"{job.task_id}: in no list" for job in jobs if job.task_id not in listed]
    attempts: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for attempt in await _all(outside, "/v1/attempts"):
        attempts[attempt["task_id"], attempt["attempt"]].append(attempt)
    result.doubled += [f"attempt {key} {len(found)} times" for key, found in attempts.items() if len(found) > 1]
    for job in jobs:
        for number, told in listed.get(job.task_id, {}).get("outcomes", {}).items():
            learned = attempts.get((job.task_id, int(number)), [])
            if not learned or learned[0]["outcome"] != told["outcome"]:
                result.unlearned.append(f"{job.task_id} attempt {number} {told['outcome']}")
    result.dead = [
        f"{one['code']} {one['subject']} {one.get('problems')}" for one in await _all(outside, "/v1/dead-letters")
    ]
    report = (await outside.ask("GET", "/v1/audit/verify", timeout=120)).json()
    result.verified, result.leaves = report["ok"], report["leaves"]


async def _all(outside: OutsideSystem, path: str) -> list[dict[str, Any]]:
    items, cursor = [], None
    while True:
        params = {"limit": 200} | ({"cursor": cursor} if cursor else {})
        page = (await outside.ask("GET", path, params=params)).json()
        items += page["items"]
        cursor = page.get("next_cursor")
        if not cursor:
            return items


HEADER = (
    f"{'seed':>5} {'tasks':>6} {'kills':>6} {'awaits':>7} {'lost':>5} {'doubled':>8} {'unlearned':>10} {'dead':>5} "
    f"{'verify':>7} {'messages':>9} {'live':>6} {'seconds':>8} {'load':>5}"
)


def row(r: Result) -> str:
    """Return the figures of a seed, in the columns of the header."""
    reached = sum(1 for name in r.kills if name in AWAITS)
    return (
        f"{r.seed:>5} {r.tasks:>6} {r.kills.total():>6} {reached:>3}/{len(AWAITS):<3} {len(r.lost):>5} "
        f"{len(r.doubled):>8} {len(r.unlearned):>10} {len(r.dead):>5} {'ok' if r.verified else 'BROKEN':>7} "
        f"{r.messages:>9} {r.seen_live:>6} {r.seconds:>8.0f} {r.load:>5.1f}"
    )
