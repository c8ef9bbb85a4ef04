"""A house with a model, whose developer can be told where to die."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
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

_ENVIRONMENT = {
    "COUNTERPOINT_MODEL": PRICED,
    "COUNTERPOINT_RELATIONS_TOKENS": "0",
    "COUNTERPOINT_ANSWER_DEADLINE_S": "90",
    "COUNTERPOINT_INVESTIGATION_DEADLINE_S": "300",
    "OPENAI_API_KEY": "sk-nobody",
}


@dataclass(frozen=True)
class MortalHouse:
    """A file in `orders` names the place where the developer dies. `outside` is the world in which its model is."""

    project: str
    stack: Stack
    data_dir: Path
    http: httpx.AsyncClient
    orders: Path
    outside: World

    async def with_project(self, project: str, knowledge: Mapping[str, str], text: str | None = None) -> "MortalHouse":
        """The same house, with documents in another project and a model that says `text` and does nothing else."""
        outside = self.outside
        outside.script, outside.text = None, text or outside.text
        outside.seen.clear()
        await ingest_documents(self.http, project, knowledge)
        return replace(self, project=project)

    async def replayed(self, task_id: str) -> TaskReport:
        """Replay a task."""
        endpoints = self.stack.endpoints

        def run() -> TaskReport:
            with ApiClient(Address(endpoints.http, endpoints.token)) as api, ReplayProcesses() as processes:
                return replay_task(api, task_id, self.project, processes)

        return await asyncio.to_thread(run)


@asynccontextmanager
async def mortal_house() -> AsyncIterator[MortalHouse]:
    """Run a house, whose project is `orders`."""
    with tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
        async with world() as outside:
            orders, data_dir = Path(folder) / "orders", Path(folder) / "data"
            orders.mkdir()
            developer = (sys.executable, str(Path(__file__).with_name("dying_developer.py")), str(orders))
            stack = Stack(data_dir, http_port=0, commands={**COMMANDS, "developer": developer})
            with pytest.MonkeyPatch.context() as patch:  # of what services get, also those that start again
                for name, value in {**_ENVIRONMENT, "OPENAI_API_BASE": f"{outside.url}/v1"}.items():
                    patch.setenv(name, value)
                await stack.start()
            try:
                headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
                async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
                    yield MortalHouse("orders", stack, data_dir, http, orders, outside)
            finally:
                await stack.stop()
