"""Processor time of the policy per item of 2 KB: token, labels, and the scan for sensitive data."""

import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from counterpoint.bench.detector import log_text, prose
from counterpoint.bench.report import BenchReport, Measurement, p50, p99
from counterpoint.bench.sections.size import SectionSize
from counterpoint.guard.capabilities import Access, Grant, Keyring, SigningKey, mint, verify
from counterpoint.guard.policy import policy
from counterpoint.memory.access import diode
from counterpoint.memory.access.screening import PLAIN, Screening
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Write

PROJECT = "bench"
DELEGATED = "counterpoint.task.delegated.v1"
ROUNDS = 10
"""Items per sample of other sections, for a steady 99th percentile."""


class _Items:
    """Items, each with a token and a new text."""

    def __init__(self) -> None:
        key = SigningKey.generate(1)
        self._minting, self._keyring = Keyring((key,)), Keyring((key,), cached=1_000_000)
        self._draw = random.Random(5)

    def create(self, count: int) -> list[tuple[str, Grant, Write]]:
        """Return `count` items: half of them log lines, half prose."""
        ends = datetime.now(UTC) + timedelta(hours=1)
        items = []
        for n in range(count):
            task, message = new_id(), new_id()
            grant = diode.capability(policy(), DELEGATED, "developer", PROJECT, task, message, ends)
            text = (prose if n % 2 else log_text)(self._draw)
            record = new_id()
            body = {
                "attempt_id": record,
                "task_id": task,
                "project": PROJECT,
                "attempt": 1,
                "description": "",
                "tried": text,
                "outcome": "failed",
                "by": "a",
                "at": "2026-01-01T00:00:00Z",
            }
            items.append((mint(self._minting, grant), grant, Write(store="attempts", id=record, body=body)))
        return items

    def check(self, items: Sequence[tuple[str, Grant, Write]]) -> list[float]:
        """Check each item as the memory service does. Return milliseconds."""
        rules, took = policy(), []
        for token, expected, write in items:
            access = diode.AccessRequest("developer", PROJECT, expected.task, expected.message, datetime.now(UTC))
            began = time.thread_time()
            grant = verify(self._keyring, token, (Access(write.store, "write"),), now=access.now)
            label = max(rules.store_level(write.store), 1)
            refused = diode.holder(grant, access) or diode.write(
                rules, grant, write.store, "developer", expected.task, label
            )
            screening = Screening(rules, PLAIN)
            screening.kept("an item", write.body or {}, rules.stores[write.store].text, label)
            screening.settle()
            diode.visible(rules, grant, write.store, write.id, PROJECT, label)
            took.append((time.thread_time() - began) * 1000)
            assert refused is None, refused
        return took


async def measure(folder: Path, size: SectionSize, report: BenchReport) -> None:
    """Measure the check of new items, then of the same items again."""
    items = _Items()
    items.check(items.create(50))
    repeated, repeated_p50, new, new_p50 = [], [], [], []
    for _ in range(size.runs):
        report.note_load()
        fresh = items.create(size.samples * ROUNDS)
        took = items.check(fresh)
        new.append(p99(took))
        new_p50.append(p50(took))
        took = items.check(fresh)
        repeated.append(p99(took))
        repeated_p50.append(p50(took))
    report.measures += [
        Measurement("policy check of a repeated 2 KB item, p99", "ms", tuple(repeated), 0.3),
        Measurement("the same, p50", "ms", tuple(repeated_p50), None),
        Measurement("policy check of a new 2 KB item, p99", "ms", tuple(new), 1.2),
        Measurement("the same, p50", "ms", tuple(new_p50), None),
    ]
