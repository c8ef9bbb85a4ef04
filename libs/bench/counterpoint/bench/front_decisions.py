"""Decisions in `counterpoint bench front`: committed at a constant rate, and the time of each commit."""

import asyncio
import time
from contextlib import suppress

from counterpoint.bench.report import progress
from counterpoint.bus import Service
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, Outgoing
from counterpoint.proto.messages import utc_now

TEXT = "number {number} of the bench"
MARK = r"number (\d+) of the bench"


async def commit_decisions(router: Service, project: str, rate: float, count: int) -> dict[int, float]:
    """Commit decisions, `rate` a second, and return the time of each reply in seconds of the epoch, by number.

    Commits that are not answered in time are left out.
    """
    committed: dict[int, float] = {}

    async def commit(number: int) -> None:
        with suppress(Transient):
            await router.memory(project, None).step(Commit(messages=(_decision(project, number),)))
            committed[number] = time.time()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            group.create_task(commit(number))
    if len(committed) < count:
        progress(f"{count - len(committed)} of {count} commits were not answered in time")
    return committed


def _decision(project: str, number: int) -> Outgoing:
    made = DecisionMade(
        decision_id=new_id(),
        project=project,
        agent="router",
        decision_type="bench",
        decision=TEXT.format(number=number),
        reasoning="a measurement of the time until it is seen",
        made_at=utc_now(),
    )
    return Outgoing(type=DecisionMade.TYPE, data=made.model_dump(mode="json", exclude_none=True))


def percentile(values: list[float], share: float) -> float:
    """Return the value below which a share of at least one value lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
