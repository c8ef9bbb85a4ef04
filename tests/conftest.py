"""Shared fixtures: one running Counterpoint for the whole session, and a project for each test inside it."""

import gc
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings
from memory_service.house import House, running_house
from xdist.scheduler import LoadGroupScheduling

from counterpoint.local.stack import Stack
from counterpoint.memory.audit import auditor, check

# The same commit has the same verdict, however busy the machine; `--hypothesis-profile=default` goes exploring.
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update`: write golden files anew instead of comparing with them."""
    parser.addoption("--update", action="store_true", help="write golden files anew")


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are processors, at most four: the tests wait for engines much of their time."""
    return min(4, (os.cpu_count() or 1) + 1)


class GroupOrFile(LoadGroupScheduling):
    """Tests of one group on one worker, so that what they share starts once; all others by file."""

    def _split_scope(self, nodeid: str) -> str:
        scope = str(super()._split_scope(nodeid))
        return scope.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupOrFile | None:
    """Distribute tests by group or file with `--dist loadgroup`."""
    return GroupOrFile(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the files that use the running stack, and put groups first: they are the longest units of work."""
    on_stack = {item.path for item in items if "stack" in getattr(item, "fixturenames", ())}
    for item in items:
        if item.path in on_stack:
            item.add_marker(pytest.mark.xdist_group("stack"))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_configure() -> None:
    """Collect no garbage while modules are imported and tests collected: there is none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt what was imported and collected from garbage collection, which would visit it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def plain_logs() -> None:
    """Every test begins with the same logs, whatever the one before set.

    Colours and local variables of every traceback would hold the event loop up for longer than an ack wait.
    """
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.__stderr__),
    )


@pytest.fixture(scope="session", autouse=True)
def checks_in_process() -> Iterator[None]:
    """Check audit logs in the process of the tests: one of its own per check costs its imports each time.

    `tests/audit/test_audit.py`, `tests/query/test_long_queries.py` and every stack use the process.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auditor, "checked", check.check)
        yield


@pytest_asyncio.fixture(scope="session")
async def stack() -> AsyncIterator[Stack]:
    """The five services and the three engines, as `make run` starts them, in a folder that goes with the session."""
    with tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
        started = Stack(Path(folder) / "data", http_port=0, inspect=True)
        await started.start()
        try:
            yield started
        finally:
            await started.stop()


@pytest_asyncio.fixture(scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """The memory service on a PostgreSQL of this session's own, without a bus."""
    async with running_house(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture
def project() -> str:
    """A project nobody else uses."""
    return f"p-{uuid4().hex[:12]}"


@pytest_asyncio.fixture
async def http(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    """The HTTP API as the laptop's administrator."""
    endpoints = stack.endpoints
    headers = {"Authorization": f"Bearer {endpoints.token}"}
    async with httpx.AsyncClient(base_url=endpoints.http, headers=headers, timeout=60) as client:
        yield client
