"""A house with a model, whose developer can be told where to die."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from agents.gateway_world import PRICED, World, world
from flows.questions import ingest_documents

from counterpoint.cli.address import Address
from counterpoint.cli.api import ApiClient
from counterpoint.cli.replay.processes import ReplayProcesses
from counterpoint.cli.replay.task import TaskReport, replay_task
from counterpoint.local.service import COMMANDS
from counterpoint.local.stack import Stack


@dataclass(frozen=True)
class MortalHouse:
    """A file in `orders` names the place where the developer dies. `outside` is the world in which its model is."""

    project: str
    stack: Stack
    data_dir: Path
    http: httpx.AsyncClient
    orders: Path
    outside: World

    async def replayed(self, task_id: str) -> TaskReport:
        """Replay a task."""
        endpoints = self.stack.endpoints

        def run() -> TaskReport:
            with ApiClient(Address(endpoints.http, endpoints.token)) as api, ReplayProcesses() as processes:
                return replay_task(api, task_id, self.project, processes)

        return await asyncio.to_thread(run)


@asynccontextmanager
async def mortal_house(
    project: str, knowledge: Mapping[str, str], environment: Mapping[str, str]
) -> AsyncIterator[MortalHouse]:
    """Run a house with the documents `knowledge` in `project`."""
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
        async with world() as outside:
            model = {"COUNTERPOINT_MODEL": PRICED, "COUNTERPOINT_RELATIONS_TOKENS": "0", "OPENAI_API_KEY": "sk-nobody"}
            for name, value in {**model, "OPENAI_API_BASE": f"{outside.url}/v1", **environment}.items():
                monkeypatch.setenv(name, value)
            orders, data_dir = Path(folder) / "orders", Path(folder) / "data"
            orders.mkdir()
            developer = (sys.executable, str(Path(__file__).with_name("dying_developer.py")), str(orders))
            stack = Stack(data_dir, http_port=0, commands={**COMMANDS, "developer": developer})
            await stack.start()
            try:
                headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
                async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
                    await ingest_documents(http, project, knowledge)
                    yield MortalHouse(project, stack, data_dir, http, orders, outside)
            finally:
                await stack.stop()
