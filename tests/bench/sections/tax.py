"""What policy costs each item of 2 KB: the token, the labels, and the search for what is sensitive. Processor time."""

import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.detect import log_text, prose
from bench.measure import Measure, Report, p50, p99
from bench.sections.size import Size
from diode.bodies import rest

from counterpoint.guard.capabilities import Access, Grant, Keyring, SigningKey, mint, verify
from counterpoint.guard.policy import policy
from counterpoint.memory import diode
from counterpoint.memory.screen import PLAIN, Screening
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Write

PROJECT = "bench"
DELEGATED = "counterpoint.task.delegated.v1"
ROUNDS = 10
"""How many items a run has for each sample of other sections: a p99 wants some."""


class _Items:
    """Items to judge: each with a token, and a text that nobody has seen."""

    def __init__(self) -> None:
        key = SigningKey.generate(1)
        self._minting, self._keyring = Keyring((key,)), Keyring((key,), cached=1_000_000)
        self._draw = random.Random(5)

    def made(self, count: int) -> list[tuple[str, Grant, Write]]:
        """So many: half of them lines of a log, half prose."""
        ends = datetime.now(UTC) + timedelta(hours=1)
        items = []
        for n in range(count):
            task, message = new_id(), new_id()
            grant = diode.capability(policy(), DELEGATED, "developer", PROJECT, task, message, ends)
            text = (prose if n % 2 else log_text)(self._draw)
            record = new_id()
            body = {**rest("attempts", record, PROJECT, task), "tried": text, "outcome": "failed"}
            items.append((mint(self._minting, grant), grant, Write(store="attempts", id=record, body=body)))
        return items

    def judged(self, items: Sequence[tuple[str, Grant, Write]]) -> list[float]:
        """Judge each as memory's door does; milliseconds each."""
        rules, took = policy(), []
        for token, made, write in items:
            asked = diode.Asked("developer", PROJECT, made.task, made.message, datetime.now(UTC))
            began = time.thread_time()
            grant = verify(self._keyring, token, (Access(write.store, "write"),), now=asked.now)
            label = max(rules.store_level(write.store), 1)
            refused = diode.holder(grant, asked) or diode.write(
                rules, grant, write.store, "developer", made.task, label
            )
            screening = Screening(rules, PLAIN)
            screening.kept("an item", write.body or {}, rules.stores[write.store].text, label)
            screening.settle()
            diode.visible(rules, grant, write.store, write.id, PROJECT, label)
            took.append((time.thread_time() - began) * 1000)
            assert refused is None, refused
        return took


async def measured(folder: Path, size: Size, report: Report) -> None:
    """The rows about the policy's tax."""
    items = _Items()
    items.judged(items.made(50))
    seen, seen_mid, unseen, unseen_mid = [], [], [], []
    for _ in range(size.runs):
        report.note_load()
        fresh = items.made(size.samples * ROUNDS)
        took = items.judged(fresh)
        unseen.append(p99(took))
        unseen_mid.append(p50(took))
        took = items.judged(fresh)
        seen.append(p99(took))
        seen_mid.append(p50(took))
    report.measures += [
        Measure("policy tax of a 2 KB item that was seen before, p99", "ms", tuple(seen), 0.3),
        Measure("the same, p50", "ms", tuple(seen_mid), None),
        Measure("policy tax of a 2 KB item never seen, p99", "ms", tuple(unseen), 1.2),
        Measure("the same, p50", "ms", tuple(unseen_mid), None),
    ]
