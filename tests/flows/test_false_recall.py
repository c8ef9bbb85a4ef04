"""A failure that memory has never seen is not claimed to be one that it has."""

import asyncio
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from counterpoint.developer.likeness import RECOGNISED

CLASSES = (
    "KeyError", "ValueError", "TypeError", "OperationalError", "IntegrityError", "ConnectionError", "TimeoutError",
    "PermissionError", "FileNotFoundError", "SchemaError", "AnalysisException", "CommitFailedException",
)  # fmt: skip
MESSAGES = (
    "column {0} has another type than {1}", "relation {0} does not exist", "no partition of {0} can be read",
    "the lease of {0} was lost", "cannot decode {0}: unexpected byte after {1}", "quota of {0} is used up",
    "{0} refused the handshake of {1}", "checksum of {0} differs from that of {1}", "{0} is locked by {1}",
    "no worker of {0} answered within {2} s", "the token of {0} has expired", "{0} rejected {2} rows of {1}",
)  # fmt: skip
NOUNS = tuple(
    f"{first}_{second}"
    for first in ("orders", "ledger", "stock", "users", "clicks", "prices", "parcels", "claims", "meters", "tickets")
    for second in ("raw", "daily", "archive", "staging", "index", "feed", "export", "cache")
)
ACTS = (
    "Raise the quota of {0}.", "Rebuild {0} from the archive.", "Renew the certificate of {0}.", "Restart {0} by hand.",
    "Drop the lock on {0} after the writer has ended.", "Pin the client of {0} to the version before.",
)  # fmt: skip
JOBS = tuple(f"{team}.{noun}" for team in ("billing", "logistics", "web", "risk", "ops") for noun in NOUNS)


@dataclass(frozen=True)
class Invented:
    """A failure of a job with its cause: a class, a message and the things it is about."""

    job: str
    cause: tuple[str, str, str, str]
    seconds: int

    @property
    def error(self) -> str:
        named, message, first, second = self.cause
        return f"{named}: {message.format(first, second, self.seconds)}"

    @property
    def report(self) -> dict[str, Any]:
        return {
            "title": f"{self.job} failed",
            "description": f"The run of {self.job} ended early; the one before it was good.",
            "error_message": self.error,
        }


def invented(known: int, new: int) -> tuple[list[Invented], list[Invented]]:
    """Failures that memory knows, and new ones: half of jobs that it knows with another cause."""
    draw = random.Random(11)
    causes = [(named, message, *draw.sample(NOUNS, 2)) for named in CLASSES for message in MESSAGES for _ in range(18)]
    draw.shuffle(causes)
    chosen = list(dict.fromkeys(causes))[: known + new]
    jobs = list(JOBS)
    draw.shuffle(jobs)
    seen, unseen = jobs[: len(jobs) * 2 // 3], jobs[len(jobs) * 2 // 3 :]
    told = [Invented(draw.choice(seen), cause, draw.randrange(5, 900)) for cause in chosen[:known]]
    asked = [
        Invented(draw.choice(seen if n % 2 else unseen), cause, draw.randrange(5, 900))
        for n, cause in enumerate(chosen[known:])
    ]
    return told, asked


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_new_failures_are_rarely_claimed_to_be_known(http: httpx.AsyncClient, project: str) -> None:
    told, asked = invented(2_000, 500)
    assert len(asked) == 500
    began = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [
        {
            **each.report,
            "source": "invented",
            "id": str(n),
            "job": {"namespace": "plant", "name": each.job},
            "tried": ACTS[n % len(ACTS)].format(each.cause[2]),
            "outcome": "succeeded",
            "when": (began + timedelta(hours=n)).isoformat(),
            "by": "on-call",
        }
        for n, each in enumerate(told)
    ]
    for start in range(0, len(rows), 100):
        answer = await http.post(
            "/v1/attempts", params={"project": project}, json={"incidents": rows[start : start + 100]}, timeout=300
        )
        answer.raise_for_status()
    turn = asyncio.Semaphore(3)

    async def claimed(each: Invented) -> bool:
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
