"""The commit path alone under fire: memory, NATS, PostgreSQL and a small developer are killed, the bus is wiped.

The record says what happened: every task's messages once each and in order, and an audit log that verifies.
"""

import asyncio
import random
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
from chaos.house import AWAITS, orders_of

from counterpoint.bench.stub_services import NAMES, routed
from counterpoint.bus import BusSettings, Service
from counterpoint.client import Memory, send
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import COMMANDS, NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.proto.errors import Away, Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, Item, LogAfter, Verify
from counterpoint.proto.tasks import SubmitTask

CHAOS = Path(__file__).parent
PATH = ("routed", "delegated", "worked", "completed")
SETTLED_WITHIN_S = 120.0
POINTS = [
    name
    for name, point in AWAITS.items()
    if point.service in ("memory", "developer") and name not in ("memory.sweeping", "memory.ingesting")
]


class Small:
    """Memory and the engines as they are, the other services as stubs; and the router's own login."""

    def __init__(self, stack: Stack, router: Service) -> None:
        self.stack = stack
        self._router = router

    def memory(self, project: str, message_id: str | None = None) -> Memory:
        """Memory as the router asks it."""
        return self._router.memory(project, None, message_id)

    async def submit(self, project: str, task_id: str) -> None:
        """Commit a task's routing, as often as it takes, under one id."""
        task = SubmitTask(kind="question", description="a toy")
        while True:
            memory = self.memory(project, task_id)
            try:
                await memory.step(Commit(messages=(send(routed(task_id, project, task, memory.now)),)))
                return
            except Transient:
                await asyncio.sleep(0.1)

    async def log(self, project: str) -> list[Item]:
        """The messages of the tasks of a project, in the order of the record."""
        items: list[Item] = []
        while True:
            after = items[-1].seq if items else 0
            found = await self.ask(project, LogAfter(after=after, kinds=("tasks",), limit=1000))
            if not found.items:
                return items
            items += found.items

    async def ask(self, project: str, query: LogAfter | Verify):  # type: ignore[no-untyped-def]
        """One answer, when memory is there."""
        while True:
            try:
                (found,) = await self.memory(project).query(query)
                return found
            except Away:
                await asyncio.sleep(0.1)

    async def completed(self, project: str, tasks: int) -> list[Item]:
        """The log once that many tasks are completed; after a while as it is."""
        try:
            async with asyncio.timeout(SETTLED_WITHIN_S):
                while True:
                    log = await self.log(project)
                    if sum(item.body["subject"].endswith(".completed") for item in log) >= tasks:
                        return log
                    await asyncio.sleep(0.3)
        except TimeoutError:
            return await self.log(project)


@asynccontextmanager
async def small(folder: Path) -> AsyncIterator[Small]:
    orders = orders_of(folder)
    orders.mkdir(parents=True)
    memory = (sys.executable, str(CHAOS / "house.py"), "service", "memory", str(orders))
    stubs = {name: (sys.executable, str(CHAOS / "stub_process.py"), name, str(orders)) for name in NAMES}
    stack = Stack(folder, http_port=0, commands={**COMMANDS, "memory": memory, **stubs})
    await stack.start()
    try:
        passwords = load_credentials(folder / "secrets.json", NATS_USERS).nats
        settings = BusSettings(
            nats_url=stack.endpoints.nats,
            nats_user="router",
            nats_password=passwords["router"],  # type: ignore[arg-type]
        )
        router = Service("router", settings)
        await router.connection.open()
        try:
            yield Small(stack, router)
        finally:
            await router.connection.close()
    finally:
        await stack.stop()


def check(log: list[Item], task_ids: list[str]) -> None:
    """Every task went the whole path, each message once, in order."""
    path: dict[str, list[str]] = defaultdict(list)
    for item in log:
        path[item.body["task_id"]].append(item.body["subject"].rsplit(".", 1)[1])
    assert Counter(tuple(path[task_id]) for task_id in task_ids) == {PATH: len(task_ids)}
    assert set(path) == set(task_ids)


@pytest.fixture(autouse=True)
def _quiet(plain_logs: None) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_kills_on_the_commit_path_lose_and_double_nothing(tmp_path: Path) -> None:
    choose = random.Random(7)
    faults = [*POINTS, "memory", "developer", "nats", "postgres"]
    choose.shuffle(faults)
    task_ids = [new_id() for _ in range(6 * len(faults))]
    unreached = []
    async with small(tmp_path / "data") as house, asyncio.TaskGroup() as group:
        for n, fault in enumerate(faults):
            for task_id in task_ids[6 * n : 6 * n + 6]:
                group.create_task(house.submit("chaos", task_id))
            if fault not in AWAITS:
                await asyncio.sleep(choose.uniform(0, 0.3))
                house.stack.kill(fault)
                continue
            order = orders_of(tmp_path / "data") / fault
            order.write_text(str(choose.randrange(3)))
            if fault == "memory.reconciling":
                house.stack.kill("memory")
            try:
                async with asyncio.timeout(20):
                    while order.exists():  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
            except TimeoutError:
                order.unlink(missing_ok=True)
                unreached.append(fault)
        log = await house.completed("chaos", len(task_ids))
        check(log, task_ids)
        report = (await house.ask("chaos", Verify())).report
        assert report["ok"], report["broken"]
        assert unreached == []


@pytest.mark.timeout(300)
async def test_a_wiped_bus_strands_no_task_and_repeats_none(tmp_path: Path) -> None:
    task_ids = [new_id() for _ in range(60)]
    async with small(tmp_path / "data") as house, asyncio.TaskGroup() as group:
        for task_id in task_ids[:40]:
            group.create_task(house.submit("chaos", task_id))
        house.stack.kill("developer")
        await house.stack.wipe("nats")
        for task_id in task_ids[40:]:
            group.create_task(house.submit("chaos", task_id))
        log = await house.completed("chaos", len(task_ids))
        check(log, task_ids)
        report = (await house.ask("chaos", Verify())).report
        assert report["ok"], report["broken"]
