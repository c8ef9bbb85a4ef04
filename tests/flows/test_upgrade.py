"""An upgrade under traffic: expand, replace the services one by one, contract; and back after the expansion.

Nothing is lost, nothing happens twice, and every request has its answer. `earlier_releases` says what a release is.
"""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from flows.earlier_releases import MIGRATIONS, ROOT, Commands, checkout, commands_of, earlier_releases

from counterpoint.bench.traffic import Traffic, traffic
from counterpoint.local.service import COMMANDS, SERVICES, ServiceName
from counterpoint.local.stack import Stack
from counterpoint.proto.errors import Transient

ORDERS: dict[str, tuple[ServiceName, ...]] = {
    "memory first": ("memory", "router", "manager", "developer", "lineage"),
    "memory last": ("lineage", "developer", "manager", "router", "memory"),
    "memory between": ("router", "developer", "memory", "lineage", "manager"),
}
RATE, IN_FLIGHT, BETWEEN = 20.0, 6, 2
"""Tasks a second at most, tasks at once, and tasks that come in between two steps."""
NEXT, CONTRACTION = "9998_next.sql", "9999_contraction.sql"


def release(number: int, folder: Path) -> Commands:
    """Return the programs of the last release, 1, or of an earlier one."""
    return commands_of(checkout(earlier_releases(number)[-1], folder / f"release-{number}"))


def later_release(folder: Path, *names: str) -> Commands:
    """Return the programs of a release that follows this one, with further migrations."""
    for part in ("proto", "libs", "services"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    further = {NEXT: "CREATE TABLE successor ();\n", CONTRACTION: f"-- contracts: {NEXT}\nDROP TABLE successor;\n"}
    for name in names:
        (folder / MIGRATIONS / name).write_text(further[name])
    return commands_of(folder)


@asynccontextmanager
async def under_traffic(data_dir: Path, commands: Commands) -> AsyncIterator[tuple[Stack, Traffic]]:
    """Run a stack of these programs while tasks come in. At the end all of it is whole."""
    stack = Stack(data_dir, http_port=0, commands=commands, hold_sockets=False)
    await stack.start()
    try:
        async with traffic(stack.endpoints, "upgrade", RATE, IN_FLIGHT) as tasks:
            await more(tasks)
            yield stack, tasks
            await more(tasks)
        count = tasks.count
        assert (count.lost, count.doubled, count.unanswered, count.dead) == ([], [], [], [])
        assert count.verified
        # The routers of earlier releases answer with 500 when they stop, because they leave the bus first.
        assert count.retries["error"] == 0 or commands is not COMMANDS
    finally:
        await stack.stop()


async def more(tasks: Traffic) -> None:
    """Wait until some more tasks have begun and ended."""
    until = tasks.ended() + BETWEEN
    while tasks.ended() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def replaced(stack: Stack, tasks: Traffic, order: Sequence[ServiceName], commands: Commands) -> None:
    """Replace the services one by one."""
    for name in order:
        await stack.replace(name, commands[name])
        await more(tasks)


@pytest.fixture(scope="module")
def last_release(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """The programs of the last release, which are found before what is installed."""
    folder = tmp_path_factory.mktemp("last")
    commands = release(1, folder)
    names = [f"counterpoint.{name}" for name in (*SERVICES, "proto", "bus", "guard")]
    told = f"import importlib; print([importlib.import_module(name).__file__ for name in {names}])"
    command = (*commands["memory"][:2], sys.executable, "-c", told)
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.count(str(folder)) == len(names), said
    return commands


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_services_of_the_last_release_are_replaced_under_traffic(
    tmp_path: Path, last_release: Commands
) -> None:
    async with under_traffic(tmp_path / "data", last_release) as (stack, tasks):
        await stack.migrate(COMMANDS)
        await more(tasks)
        await replaced(stack, tasks, ORDERS["memory between"], COMMANDS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("order", ORDERS)
async def test_each_order_of_services_and_the_way_back_under_traffic(tmp_path: Path, order: str, number: int) -> None:
    before = release(number, tmp_path)
    async with under_traffic(tmp_path / "data", before) as (stack, tasks):
        await stack.migrate(COMMANDS)
        await replaced(stack, tasks, ORDERS[order], COMMANDS)
        await replaced(stack, tasks, ORDERS[order], before)
        await replaced(stack, tasks, ORDERS[order], COMMANDS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_a_later_release_contracts_under_traffic_and_only_in_its_turn(tmp_path: Path) -> None:
    expanded = later_release(tmp_path / "next", NEXT)
    contracted = later_release(tmp_path / "contracted", NEXT, CONTRACTION)
    async with under_traffic(tmp_path / "data", COMMANDS) as (stack, tasks):
        with pytest.raises(Transient, match="a release was skipped"):
            await stack.migrate(contracted)
        await more(tasks)
        await stack.migrate(expanded)
        await replaced(stack, tasks, SERVICES, expanded)
        await stack.migrate(contracted)
        await replaced(stack, tasks, SERVICES, contracted)
        with pytest.raises(Transient, match=f"start a release with {NEXT}"):
            await stack.migrate(COMMANDS)
        await stack.migrate(contracted)
