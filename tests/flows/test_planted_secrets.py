"""A secret in any field, name or header of any door is kept nowhere: in no table, file, stream or log."""

import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from flows.found_secrets import Needles, Survivors, in_files, in_streams, in_tables, quiet
from flows.planting import Planted, plant
from flows.planting_senders import HOOKS, hooks_file

from counterpoint.local.stack import Stack

pytestmark = pytest.mark.timeout(600)
CONTROL = "How long are orders kept?"
"""Something harmless that every place has, so that finding nothing means something."""


@dataclass(frozen=True)
class Searched:
    """What was planted, and what of it was found in tables, in streams, and in files once nothing ran any more."""

    planted: Planted
    tables: Survivors
    streams: Survivors
    files: Survivors

    def report(self, found: Survivors) -> str:
        """Who survived where, by door."""
        found = {needle: at for needle, at in found.items() if needle != CONTROL}
        lines = sorted(f"{self.planted.places[needle]} -> {', '.join(sorted(at))}" for needle, at in found.items())
        doors = Counter(place.partition(":")[0] for place in self.planted.places.values())
        left = Counter(self.planted.places[needle].partition(":")[0] for needle in found)
        return "\n".join([*lines, *(f"{door}: {left[door]} of {number}" for door, number in sorted(doors.items()))])


@pytest_asyncio.fixture(scope="module")
async def searched() -> AsyncIterator[Searched]:
    """A house of its own, planted, searched while it runs and again when it has stopped."""
    with tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
        stack = Stack(Path(folder) / "data", http_port=0, inspect=True)
        with hooks_file(Path(folder)):
            await stack.start()
        try:
            planted = await plant(stack)
            needles = Needles((*planted.places, CONTROL))
            await quiet(stack)
            tables, streams = await in_tables(stack, needles), await in_streams(stack, needles)
        finally:
            await stack.stop()
        yield Searched(planted, tables, streams, in_files(stack.data_dir, needles))


def test_two_hundred_secrets_are_planted_and_doors_open(searched: Searched) -> None:
    assert len(searched.planted.places) >= 200
    statuses = Counter(status // 100 for _, status in searched.planted.statuses)
    assert statuses[2] > 100
    taken = {name for name, status in searched.planted.statuses if status // 100 == 2}
    assert taken >= {"mcp", "slack", "teams", *HOOKS}
    assert not [each for each in searched.planted.statuses if each[1] == 500]


def test_none_is_in_the_database(searched: Searched) -> None:
    assert searched.tables.keys() == {CONTROL}, searched.report(searched.tables)


def test_none_is_in_any_stream(searched: Searched) -> None:
    assert searched.streams.keys() == {CONTROL}, searched.report(searched.streams)


def test_none_is_in_any_file(searched: Searched) -> None:
    assert searched.files.keys() == {CONTROL}, searched.report(searched.files)
