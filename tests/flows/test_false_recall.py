"""A failure that memory has never seen is not claimed to be one that it has."""

import asyncio
import random

import httpx
import pytest

from counterpoint.bench.synthetic_incidents import ERROR_CLASSES, ERROR_MESSAGES, JOBS, TABLES, SyntheticIncident
from counterpoint.developer.evidence.likeness import RECOGNISED


def invented(known: int, new: int) -> tuple[list[SyntheticIncident], list[SyntheticIncident]]:
    """Failures that memory knows, and new ones: half of jobs that it knows with another cause."""
    draw = random.Random(11)
    causes = [
        (named, message, *draw.sample(TABLES, 2))
        for named in ERROR_CLASSES
        for message in ERROR_MESSAGES
        for _ in range(18)
    ]
    draw.shuffle(causes)
    chosen = list(dict.fromkeys(causes))[: known + new]
    jobs = list(JOBS)
    draw.shuffle(jobs)
    seen, unseen = jobs[: len(jobs) * 2 // 3], jobs[len(jobs) * 2 // 3 :]
    told = [SyntheticIncident(draw.choice(seen), cause, draw.randrange(5, 900)) for cause in chosen[:known]]
    asked = [
        SyntheticIncident(draw.choice(seen if n % 2 else unseen), cause, draw.randrange(5, 900))
        for n, cause in enumerate(chosen[known:])
    ]
    return told, asked


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_new_failures_are_rarely_claimed_to_be_known(http: httpx.AsyncClient, project: str) -> None:
    told, asked = invented(2_000, 500)
    assert len(asked) == 500
    rows = [each.incident(n) for n, each in enumerate(told)]
    for start in range(0, len(rows), 100):
        answer = await http.post(
            "/v1/attempts", params={"project": project}, json={"incidents": rows[start : start + 100]}, timeout=300
        )
        answer.raise_for_status()
    turn = asyncio.Semaphore(3)

    async def claimed(each: SyntheticIncident) -> bool:
        body = {
            "kind": "troubleshoot",
            **each.report,
            "target": {"job": {"namespace": "plant", "name": each.job}},
        }
        async with turn:
            answer = await http.post(
                "/v1/tasks", params={"project": project}, headers={"Prefer": "wait=60"}, json=body, timeout=120
            )
        answer.raise_for_status()
        return ((answer.json().get("findings") or {}).get("likelihood") or 0.0) >= RECOGNISED

    share = sum(await asyncio.gather(*map(claimed, asked))) / len(asked)
    print(f"claimed {share:.3f} of {len(asked)} new failures in a memory of {len(told)}")
    assert share <= 0.03
