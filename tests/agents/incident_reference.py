"""A reference for incidents, written apart from the service: the failures that stand, grouped, from all events at once.

It knows the whole history and no order of arrival. Flows are those that `flows` draws: DAGs of tasks with retries, on
several days, that read what others write.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agents.incident_simulation import run_event

DAY = 86_400
ERRORS = ("disk is full", "no such table", "connection refused")


@dataclass(frozen=True)
class Job:
    dag: str
    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass
class History:
    """All events of some days, and the facts they were made of."""

    jobs: list[Job]
    events: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    passed: list[dict[str, Any]] = field(default_factory=list)


Standing = frozenset[tuple[str, str, int, frozenset[str], frozenset[str]]]
"""Job, error, flows hit, runs that failed (with the wholes), and jobs that follow."""


def history(seed: int) -> History:
    """A history drawn by a seed."""
    draw = random.Random(seed)
    jobs = [
        Job(
            dag=f"d{dag}",
            name=f"d{dag}.t{task}",
            reads=tuple(f"x{dag}{task - 1}" for _ in range(1) if task)
            + tuple(f"x{draw.randrange(dag)}0" for _ in range(1) if dag and not task and draw.random() < 0.7),
            writes=(f"x{dag}{task}",),
        )
        for dag in range(draw.randint(1, 3))
        for task in range(draw.randint(1, 3))
    ]
    known = History(jobs)
    for day in range(draw.randint(1, 3)):
        broken = {job.name for job in jobs if draw.random() < 0.35}
        for at, dag in enumerate(sorted({job.dag for job in jobs})):
            _dag_run(known, draw, dag, day, day * DAY + at * 1000, broken)
    return known


def flood(seed: int) -> History:
    """About 10,000 events of three weeks: forty DAGs of five tasks that seldom fail, until on the last day many do."""
    draw = random.Random(seed)
    jobs = []
    for dag in range(40):
        above = (f"x{draw.randrange(dag)}4",) if dag and draw.random() < 0.2 else ()
        for task in range(5):
            reads = (f"x{dag}{task - 1}",) if task else above
            jobs.append(Job(dag=f"d{dag}", name=f"d{dag}.t{task}", reads=reads, writes=(f"x{dag}{task}",)))
    known = History(jobs)
    for day in range(21):
        broken = {job.name for job in jobs if draw.random() < (0.005 if day < 20 else 0.4)}
        for dag in range(40):
            _dag_run(known, draw, f"d{dag}", day, day * DAY + dag * 1000, broken, steady=True)
    return known


def _dag_run(
    known: History, draw: random.Random, dag: str, day: int, start: int, broken: set[str], *, steady: bool = False
) -> None:
    flow, at, lost = f"{dag}-{day}", start, False
    nominal = f"2026-11-{10 + day:02}T00:00:00Z"
    for job in (job for job in known.jobs if job.dag == dag):
        retries = draw.randint(0, 2)
        error = draw.choice(ERRORS)
        wins_at = draw.choice([9, 9, 9, retries + 1]) if job.name in broken else 1 if steady else draw.choice([1, 2])
        for number in range(1, retries + 2):
            at += 50
            fails = number < wins_at
            said = {
                "job": job.name,
                "run_id": f"{flow}-{job.name}-{number}",
                "nominal": nominal,
                "parent": (dag, flow),
                "reads": job.reads,
                "writes": job.writes,
                "task": {"task_id": job.name, "retries": retries},
                "taskInstance": {"try_number": number},
                "dagRun": {"run_id": flow},
            }
            fact = {"job": job.name, "run": said["run_id"], "at": at, "flow": flow, "day": day, "try": number}
            known.events.append(run_event("START", at - 20, **said))
            if fails:
                known.events.append(run_event("FAIL", at, error=error, **said))
                known.failed.append(fact | {"error": error, "left": number <= retries, "whole": False})
            else:
                known.events.append(run_event("COMPLETE", at, **said))
                known.passed.append(fact)
                break
        else:
            lost = True
    said = {"job": dag, "run_id": flow, "nominal": nominal, "job_type": "DAG", "dagRun": {"run_id": flow}}
    fact = {"job": dag, "run": flow, "at": at + 10, "flow": flow, "day": day, "try": None}
    known.events.append(run_event("START", start, **said))
    if lost:
        known.events.append(run_event("FAIL", at + 10, error="task_failure", **said))
        known.failed.append(fact | {"error": "task_failure", "left": False, "whole": True})
    else:
        known.events.append(run_event("COMPLETE", at + 10, **said))
        known.passed.append(fact)


def final_incidents(known: History) -> Standing:
    """The incidents that stand when everything has come in and nothing is waited for."""
    over = {f["run"]: _over(f, known.passed) for f in known.failed}
    causes = [f for f in known.failed if not f["whole"]]
    echo = {}
    for whole in (f for f in known.failed if f["whole"]):
        parts = [
            f for f in causes if f["flow"] == whole["flow"] and (over[f["run"]] is None or over[f["run"]] > whole["at"])
        ]
        if parts:
            parts.sort(key=lambda f: (over[f["run"]] is not None, f["at"], f["run"]))
            echo[whole["run"]] = parts[0]
    episodes: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for f in known.failed:
        if f["run"] not in echo:
            episodes.setdefault((f["job"], f["flow"], over[f["run"]]), []).append(f)
    roots: list[tuple[Any, ...]] = []
    follows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    down = {job: _down(job, known.jobs) for job in {f["job"] for f in known.failed}}
    for key in sorted(episodes, key=lambda k: (min(f["at"] for f in episodes[k]), k[0])):
        first = min(f["at"] for f in episodes[key])
        above = [
            r
            for r in roots
            if key[0] in down[r[0]] and (r[2] is None or r[2] > first) and not _mended(episodes[r], known.passed)
        ]
        if above:
            follows[key] = min(above, key=lambda r: (r[2] is not None, min(f["at"] for f in episodes[r])))
        else:
            roots.append(key)
    groups: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for key in roots:
        if key[2] is None:
            last = max(episodes[key], key=lambda f: (f["try"] or 0, f["at"]))
            groups.setdefault((key[0], last["error"]), []).append(key)
    found = set()
    for (job, error), keys in groups.items():
        runs = {f["run"] for key in keys for f in episodes[key]}
        wholes = {run for run, part in echo.items() if part["run"] in runs}
        jobs = {key[0] for key, root in follows.items() if root in keys and key[2] is None}
        found.add((job, error, len({key[1] for key in keys}), frozenset(runs | wholes), frozenset(jobs)))
    return frozenset(found)


def _over(f: dict[str, Any], passed: Iterable[dict[str, Any]]) -> int | None:
    later = [p for p in passed if p["job"] == f["job"] and p["at"] > f["at"]]
    later = [p for p in later if p["day"] > f["day"] or (p["flow"] == f["flow"] and (p["try"] or 0) > (f["try"] or 0))]
    return min((p["at"] for p in later), default=None)


def _mended(episode: list[dict[str, Any]], passed: list[dict[str, Any]]) -> bool:
    """Whether a retry of the same flow put it right."""
    ends = {(p["job"], p["flow"], p["at"]) for p in passed}
    return all(f["left"] and (f["job"], f["flow"], _over(f, passed)) in ends for f in episode)


def _down(job: str, jobs: list[Job]) -> set[str]:
    """Return the jobs downstream of a job, over any number of hops. A DAG writes whatever its own tasks write."""
    mine = {j.name for j in jobs if job in (j.name, j.dag)}
    found: set[str] = set()
    ahead = set(mine)
    while ahead:
        data = {d for j in jobs if j.name in ahead for d in j.writes}
        ahead = {j.name for j in jobs if data & set(j.reads)} - found - mine
        found |= ahead
    return found
