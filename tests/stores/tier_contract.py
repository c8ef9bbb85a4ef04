"""Behaviour of every tier on any engine: the newest version wins, projects are apart, a rebuild changes nothing."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint.memory.embedding.model import DIMENSIONS, Vectors
from counterpoint.memory.projection.tier import RecordChange, Tier, TierPosition

ORDERS, BILLING = "orders", "billing"
INTERNAL, CONFIDENTIAL = 1, 2

Answer = list[tuple[Any, ...]]


def vector(seed: int) -> Vectors:
    """A direction of its own for each seed."""
    found = np.random.default_rng(seed).normal(size=DIMENSIONS).astype(np.float32)
    return np.asarray(found / np.linalg.norm(found), np.float32)


@dataclass(frozen=True)
class Wrote:
    """One version of a record, as a test writes it. `says` is None for a removal."""

    id: str
    version: int = 1
    says: str | None = "it was tried"
    label: int = INTERNAL
    project: str = ORDERS


class Driver(ABC):
    """Access of a test to one tier on one engine."""

    @abstractmethod
    async def apply(self, *written: Wrote) -> None:
        """Have the tier take these."""

    @abstractmethod
    async def seen(self, project: str = ORDERS, clearance: int = CONFIDENTIAL) -> Answer:
        """All that the tier shows of a project, in its order: id and version first, then what it ranks by."""

    @abstractmethod
    async def again(self) -> None:
        """Close everything, and open it as another process would."""

    @abstractmethod
    async def rebuilt(self, project: str, *written: Wrote) -> None:
        """Forget the project, and take these again."""

    @abstractmethod
    async def close(self) -> None:
        """The end."""


class TierContract(ABC):
    """Inherit it for each tier and engine."""

    @abstractmethod
    async def driver(self, folder: Path) -> Driver:
        """A fresh tier."""

    @pytest.fixture
    async def tier(self, tmp_path: Path) -> AsyncIterator[Driver]:
        driver = await self.driver(tmp_path)
        yield driver
        await driver.close()

    async def test_an_empty_project_shows_nothing(self, tier: Driver) -> None:
        await tier.apply(Wrote("a", project=BILLING))
        await tier.apply()
        assert await tier.seen() == []

    async def test_the_newest_version_wins_whatever_comes_last(self, tier: Driver) -> None:
        await tier.apply(Wrote("a", 1), Wrote("b", 1))
        await tier.apply(Wrote("a", 2, "it worked"))
        await tier.apply(Wrote("a", 1))
        assert {row[:2] for row in await tier.seen()} == {("a", 2), ("b", 1)}

    async def test_applying_a_change_twice_has_one_effect(self, tier: Driver) -> None:
        await tier.apply(Wrote("a"), Wrote("b"))
        once = await tier.seen()
        await tier.apply(Wrote("a"), Wrote("b"))
        await tier.apply(Wrote("a"))
        assert await tier.seen() == once

    async def test_an_older_version_does_not_restore_a_removed_record(self, tier: Driver) -> None:
        await tier.apply(Wrote("a"), Wrote("b"))
        await tier.apply(Wrote("a", 2, None))
        await tier.apply(Wrote("a", 1))
        assert [row[:2] for row in await tier.seen()] == [("b", 1)]
        await tier.apply(Wrote("a", 3))
        assert {row[:2] for row in await tier.seen()} == {("a", 3), ("b", 1)}

    async def test_another_project_changes_no_answer(self, tier: Driver) -> None:
        mine = [Wrote(f"r{n}", says=f"attempt {n}") for n in range(20)]
        await tier.apply(*mine)
        alone = await tier.seen()
        assert len(alone) == 20
        others = [Wrote(f"r{n}", says="attempt 3, as it happens", project=BILLING) for n in range(40)]
        await tier.apply(*others)
        assert await tier.seen() == alone
        await tier.apply(*(Wrote(each.id, 2, "another", project=BILLING) for each in others))
        await tier.apply(*(Wrote(each.id, 3, None, project=BILLING) for each in others[:20]))
        assert await tier.seen() == alone
        assert len(await tier.seen(BILLING)) == 20

    async def test_a_label_above_the_clearance_is_not_seen_and_takes_no_place(self, tier: Driver) -> None:
        await tier.apply(*(Wrote(f"r{n}", label=INTERNAL if n % 2 else CONFIDENTIAL + 1) for n in range(20)))
        assert sorted(row[0] for row in await tier.seen()) == sorted(f"r{n}" for n in range(1, 20, 2))
        await tier.apply(Wrote("r1", 2, label=CONFIDENTIAL + 1))
        assert "r1" not in {row[0] for row in await tier.seen()}

    async def test_a_reopened_tier_has_its_records(self, tier: Driver) -> None:
        await tier.apply(Wrote("a"), Wrote("b"))
        await tier.apply(Wrote("b", 2, None))
        before = await tier.seen()
        await tier.again()
        assert await tier.seen() == before

    async def test_a_rebuild_answers_the_same(self, tier: Driver) -> None:
        await tier.apply(*(Wrote(f"r{n}", says=f"attempt {n % 7}") for n in range(30)))
        await tier.apply(*(Wrote(f"r{n}", 2, None if n % 2 else f"changed {n}") for n in range(10)))
        before = await tier.seen()
        now = [Wrote(f"r{n}", says=f"attempt {n % 7}") for n in range(10, 30)]
        now += [Wrote(f"r{n}", 2, None if n % 2 else f"changed {n}") for n in range(10)]
        await tier.rebuilt(ORDERS, *now)
        assert await tier.seen() == before

    async def test_concurrent_first_writes_are_all_applied(self, tier: Driver) -> None:
        await asyncio.gather(
            *(tier.apply(Wrote(f"{project}-{n}", project=project)) for n in range(4) for project in (ORDERS, BILLING))
        )
        for project in (ORDERS, BILLING):
            assert {row[0] for row in await tier.seen(project)} == {f"{project}-{n}" for n in range(4)}


class TierDriver(Driver):
    """A projection: changes are handed to it."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.seq = 0

    @abstractmethod
    def change(self, wrote: Wrote, seq: int) -> RecordChange:
        """A version of a record of the tier's store."""

    @abstractmethod
    def opened(self) -> Tier:
        """The same tier as another process opens it."""

    async def apply(self, *written: Wrote, draft: bool = False) -> None:
        """Have the tier take these."""
        for project in {each.project for each in written} or {ORDERS}:
            changes = []
            for each in written:
                if each.project == project:
                    self.seq += 1
                    changes.append(self.change(each, self.seq))
            await self.tier.apply(project, changes, TierPosition("life", self.seq), draft=draft)

    async def again(self) -> None:
        """Close and open."""
        await self.tier.close()
        self.tier = self.opened()

    async def rebuilt(self, project: str, *written: Wrote) -> None:
        """Drop, build a draft, and swap it in."""
        await self.tier.drop(project)
        await self.apply(*written, draft=True)
        await self.tier.swap(project)

    async def close(self) -> None:
        """Close the tier."""
        await self.tier.close()
