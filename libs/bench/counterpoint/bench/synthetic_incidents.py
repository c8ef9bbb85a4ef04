"""Synthetic incidents: failures of jobs with an error class, a message and the tables it names, no cause twice."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

ERROR_CLASSES = (
    "KeyError", "ValueError", "TypeError", "OperationalError", "IntegrityError", "ConnectionError", "TimeoutError",
    "PermissionError", "FileNotFoundError", "SchemaError", "AnalysisException", "CommitFailedException",
)  # fmt: skip
ERROR_MESSAGES = (
    "column {0} has another type than {1}", "relation {0} does not exist", "no partition of {0} can be read",
    "the lease of {0} was lost", "cannot decode {0}: unexpected byte after {1}", "quota of {0} is used up",
    "{0} refused the handshake of {1}", "checksum of {0} differs from that of {1}", "{0} is locked by {1}",
    "no worker of {0} answered within {2} s", "the token of {0} has expired", "{0} rejected {2} rows of {1}",
)  # fmt: skip
TABLES = tuple(
    f"{first}_{second}"
    for first in ("orders", "ledger", "stock", "users", "clicks", "prices", "parcels", "claims", "meters", "tickets")
    for second in ("raw", "daily", "archive", "staging", "index", "feed", "export", "cache")
)
FIXES = (
    "Raise the quota of {0}.", "Rebuild {0} from the archive.", "Renew the certificate of {0}.", "Restart {0} by hand.",
    "Drop the lock on {0} after the writer has ended.", "Pin the client of {0} to the version before.",
)  # fmt: skip
JOBS = tuple(f"{team}.{noun}" for team in ("billing", "logistics", "web", "risk", "ops") for noun in TABLES)


@dataclass(frozen=True)
class SyntheticIncident:
    """Failure of a job. `cause` is the error class, the message template and the two tables it names."""

    job: str
    cause: tuple[str, str, str, str]
    seconds: int

    @property
    def error(self) -> str:
        """Error message."""
        named, message, first, second = self.cause
        return f"{named}: {message.format(first, second, self.seconds)}"

    @property
    def report(self) -> dict[str, Any]:
        """Fields of a task that reports the failure."""
        return {
            "title": f"{self.job} failed",
            "description": f"The run of {self.job} ended early; the one before it was good.",
            "error_message": self.error,
        }

    def incident(self, number: int) -> dict[str, Any]:
        """Return the failure as a past incident with a fix that worked."""
        return {
            **self.report,
            "source": "invented",
            "id": str(number),
            "job": {"namespace": "plant", "name": self.job},
            "tried": FIXES[number % len(FIXES)].format(self.cause[2]),
            "outcome": "succeeded",
            "when": (datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=number)).isoformat(),
            "by": "on-call",
        }


def synthetic_incidents(count: int) -> Iterator[dict[str, Any]]:
    """Yield past incidents, each with another cause; at most 900,000."""
    draw = random.Random(23)
    seen = set[tuple[str, str, str, str]]()
    while len(seen) < count:
        first, second = draw.sample(TABLES, 2)
        cause = draw.choice(ERROR_CLASSES), draw.choice(ERROR_MESSAGES), first, second
        if cause not in seen:
            yield SyntheticIncident(draw.choice(JOBS), cause, draw.randrange(5, 900)).incident(len(seen))
            seen.add(cause)
