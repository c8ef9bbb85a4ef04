"""Nightly maintenance for Kontor: delete old runs, their step rows and their logs.

Deployed as the flow ``kontor_prune``, paused like every new flow. Runs at 01:30 UTC. Started by hand it only counts,
unless ``--really`` is given::

    python kontor_prune.py --older-than 180
    python kontor_prune.py --older-than 180 --really

Runs that are open are never touched, however old they are. Neither is a run that has a step in the state ``unklar``.
"""

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

# Shown as the owner in the web interface. The people behind it are those of the ownership page.
FLOW_OWNER = "ledger"

# Minute, hour, day, month, weekday, in UTC.
SCHEDULE = "30 1 * * *"

# Used when the configuration has no value for laeufe_tage. Below MINIMUM_DAYS the script stops with exit code 3.
DEFAULT_DAYS = 180
MINIMUM_DAYS = 14

# Rows for each transaction. Above 5000 the Planer waits noticeably for the same rows.
BATCH_ROWS = 2000

# Rest between two transactions, in seconds, so that replicas of the database can follow.
PAUSE_S = 0.5

# The script ends by itself after this time and goes on in the next night.
TIME_BUDGET_MIN = 90

# Flows whose runs are kept for ten years, whatever the configuration says.
KEEP_FOREVER = ("nightly-close", "fx-rates-hourly")

# Set to True while auditors are in the house. Nothing is deleted then, the counts are printed.
AUDIT_HOLD = False

EXIT_OK, EXIT_BUDGET, EXIT_REFUSED, EXIT_BUSY = 0, 2, 3, 4

OLD_RUNS = """
    SELECT id FROM lauf
    WHERE beendet_am < %(before)s
      AND ablauf <> ALL(%(keep)s)
      AND NOT EXISTS (SELECT 1 FROM schritt WHERE schritt.lauf = lauf.id AND zustand = 'unklar')
    ORDER BY beendet_am
    LIMIT %(rows)s
"""


def threshold(days: int, now: datetime) -> datetime:
    """Return the moment before which runs are old.

    Counted from the end of a run, not from its start or its key date. A run that took a month is therefore kept a month
    longer than one might think.
    """
    if days < MINIMUM_DAYS:
        raise SystemExit(EXIT_REFUSED)
    return now - timedelta(days=days)


def batches(connection: Any, before: datetime) -> Iterator[list[int]]:
    """Yield the ids of old runs, ``BATCH_ROWS`` at a time, oldest first."""
    while True:
        rows = connection.execute(
            OLD_RUNS, {"before": before, "keep": list(KEEP_FOREVER), "rows": BATCH_ROWS}
        ).fetchall()
        if not rows:
            return
        yield [row[0] for row in rows]


def delete(connection: Any, runs: list[int]) -> int:
    """Delete step rows first, then the runs, in one transaction. Return the number of rows.

    The order matters: there is no foreign key between the two tables since Kontor 4.2, and step rows without a run make
    the web interface answer with 500.
    """
    with connection.transaction():
        steps = connection.execute("DELETE FROM schritt WHERE lauf = ANY(%s)", (runs,)).rowcount
        return int(steps + connection.execute("DELETE FROM lauf WHERE id = ANY(%s)", (runs,)).rowcount)


def another_is_running(connection: Any) -> bool:
    """Try the advisory lock 7002. The Planer uses 7001; the two never wait for each other."""
    return not connection.execute("SELECT pg_try_advisory_lock(7002)").fetchone()[0]


def main(arguments: list[str], connection: Any) -> int:
    """Count or delete. Exit codes: 0 done, 2 out of time, 3 refused (too few days), 4 another one is running."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--older-than", type=int, default=DEFAULT_DAYS, metavar="DAYS")
    parser.add_argument("--really", action="store_true", help="delete; without it the script only counts")
    given = parser.parse_args(arguments)
    if another_is_running(connection):
        return EXIT_BUSY
    start = datetime.now(UTC)
    for runs in batches(connection, threshold(given.older_than, start)):
        if not given.really or AUDIT_HOLD:
            print(f"would delete {len(runs)} runs or more")
            return EXIT_OK
        print(f"deleted {delete(connection, runs)} rows")
        if datetime.now(UTC) - start > timedelta(minutes=TIME_BUDGET_MIN):
            return EXIT_BUDGET
    return EXIT_OK


if __name__ == "__main__":
    sys.exit("needs a connection: run it as the flow kontor_prune")
