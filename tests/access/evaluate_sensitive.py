"""Quality of the detector on labelled rows: `python tests/access/evaluate_sensitive.py FILE [--missed]`.

Rows are JSON lines `{"text", "kind": pii | secret | both, "label": 1 | 0, "group"}`. One counts as flagged when its
verdict at the default label of `counterpoint scan` is not `allow`. Group `ner-only` holds names and street addresses,
which nobody promises to find. `both` are lines of logs without anything sensitive.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from counterpoint.guard.judge import judge
from counterpoint.guard.policy import policy

UNPROMISED, LOGS = "ner-only", "ops-neg"


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def part(row: dict[str, Any]) -> str:
    """Return the part of the report that counts a row."""
    group = str(row.get("group", ""))
    if group == UNPROMISED:
        return UNPROMISED
    return "ops logs" if group.startswith(LOGS) else str(row["kind"])


def ratio(some: int, of: int) -> str:
    """A share as text."""
    return f"{some / of:.4f} ({some}/{of})" if of else "-"


def main(arguments: list[str]) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--missed", action="store_true", help="name the group and id of each row that is wrong")
    chosen = parser.parse_args(arguments)
    counts: Counter[tuple[str, int, bool]] = Counter()
    for row in rows(chosen.file):
        judged = judge(policy(), {"text": row["text"]}, ("text",), 0)
        flagged, wanted = judged.verdict != "allow", row["label"] == 1
        counts[part(row), row["label"], flagged] += 1
        if chosen.missed and flagged != wanted and part(row) != UNPROMISED:
            kinds = ",".join(found.finding.type for found in judged.findings)
            print(
                f"{'false alarm' if flagged else 'missed'}\t{row['group']}\t{row['id']}\t{kinds}\t{row['text']!r:.240}"
            )
    for name in sorted({name for name, _, _ in counts}):
        hit, lost = counts[name, 1, True], counts[name, 1, False]
        wrong, quiet = counts[name, 0, True], counts[name, 0, False]
        print(
            f"{name}: precision {ratio(hit, hit + wrong)}, recall {ratio(hit, hit + lost)}, "
            f"false alarms {ratio(wrong, wrong + quiet)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
