"""Invented failures: a class, a message and the things it is about, none of them twice."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

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

    def incident(self, number: int) -> dict[str, Any]:
        """The failure as a past incident that was mended."""
        return {
            **self.report,
            "source": "invented",
            "id": str(number),
            "job": {"namespace": "plant", "name": self.job},
            "tried": ACTS[number % len(ACTS)].format(self.cause[2]),
            "outcome": "succeeded",
            "when": (datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=number)).isoformat(),
            "by": "on-call",
        }


def incidents(count: int) -> Iterator[dict[str, Any]]:
    """Past incidents, each of another cause; at most 900,000."""
    draw = random.Random(23)
    seen = set[tuple[str, str, str, str]]()
    while len(seen) < count:
        first, second = draw.sample(NOUNS, 2)
        cause = draw.choice(CLASSES), draw.choice(MESSAGES), first, second
        if cause not in seen:
            yield Invented(draw.choice(JOBS), cause, draw.randrange(5, 900)).incident(len(seen))
            seen.add(cause)
