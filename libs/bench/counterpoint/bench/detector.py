"""Time of the detector per text: `python -m counterpoint.bench.detector [--rounds N]`. JSON on standard output.

Texts are 2 KB of log lines or prose. `unseen` is the first scan of a text, `seen` a later one, `in` a search for one
absent word.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable

from counterpoint.guard.detector import scan

CHARS = 2048
_PROSE = "the run of a task waits for its upstream and reads what was written by the day before "


def log_text(draw: random.Random) -> str:
    """Return log lines without anything sensitive: times, ids, hashes, addresses with a port."""
    lines = (
        lambda: (
            f"[2026-09-{draw.randint(10, 28)} 08:42:54,{draw.randint(100, 999)}] {{taskinstance.py:1193}} INFO - ok"
        ),
        lambda: f"pulled registry.local:5000/app@sha256:{draw.getrandbits(256):064x} in 0.{draw.randint(100, 999)}s",
        lambda: f"dial tcp 10.4.{draw.randint(0, 255)}.7:5432: connect: connection refused (attempt 3)",
        lambda: f"offset={draw.getrandbits(40)} epoch_ms={draw.getrandbits(40)} token_count={draw.randint(1, 9000)}",
        lambda: f"secret app-{draw.randint(1, 9)}-tls not found; key=orders-{draw.randint(100, 999)} passed auth",
    )
    return "\n".join(draw.choice(lines)() for _ in range(60))[:CHARS]


def prose(draw: random.Random) -> str:
    """Return plain words."""
    words = _PROSE.split()
    return " ".join(draw.choice(words) for _ in range(CHARS // 3))[:CHARS]


def cpu_ms(calls: list[Callable[[], object]]) -> dict[str, float]:
    """Return the milliseconds of processor time per call, which other processes do not change."""
    taken = []
    for call in calls:
        began = time.thread_time()
        call()
        taken.append((time.thread_time() - began) * 1000)
    taken.sort()
    return {"p50_ms": round(taken[len(taken) // 2], 4), "p99_ms": round(taken[len(taken) * 99 // 100], 4)}


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args(arguments).rounds
    draw = random.Random(20)
    report: dict[str, dict[str, dict[str, float]]] = {}
    for name, make in (("log", log_text), ("prose", prose)):
        for text in (make(draw) for _ in range(50)):
            scan(text)
        texts = [make(draw) for _ in range(rounds)]
        calls: list[Callable[[], object]] = [lambda text=text: scan(text) for text in texts]  # type: ignore[misc]
        plain: list[Callable[[], object]] = [lambda text=text: "\x01none" in text for text in texts]  # type: ignore[misc]
        report[name] = {"unseen": cpu_ms(calls), "seen": cpu_ms(calls), "in": cpu_ms(plain)}
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
