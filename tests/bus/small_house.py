"""A small house: a real NATS and PostgreSQL, the real memory service, and services with toy handlers."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import nats as nats_client
from nats.aio.client import Client

from counterpoint.bus import BusSettings, Service
from counterpoint.bus.permissions import nats_config, users
from counterpoint.bus.provision import provision
from counterpoint.bus.streams import ConsumerSpec, consumer_specs
from counterpoint.client import Memory, act, put, send
from counterpoint.guard.capabilities import SigningKey
from counterpoint.guard.policy import policy
from counterpoint.local.nats import NatsServer, run_nats
from counterpoint.local.postgres import run_postgres
from counterpoint.local.probe import http_ok
from counterpoint.local.process import ManagedProcess, Program, running
from counterpoint.local.state_file import StateFile
from counterpoint.memory.record.migrate import migrate
from counterpoint.proto import subjects
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, CommitReply
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import SubmitTask, Task, TaskDelegated, TaskRouted, TaskWorked

ACK_WAIT_S = 1.5
DEVELOPER_MAX_DELIVER = 3
PATIENCE_S = 30.0
TOY = str(Path(__file__).with_name("toy.py"))
"""A developer as a program."""
PASSWORDS = {user: f"secret-of-{user}" for user in users()}


def specs() -> tuple[ConsumerSpec, ...]:
    """The consumers of the policy, more impatient."""
    return tuple(
        replace(spec, ack_wait_s=ACK_WAIT_S, max_deliver=DEVELOPER_MAX_DELIVER if spec.durable == "developer" else 60)
        for spec in consumer_specs(policy())
    )


async def eventually(holds: Callable[[], Any], what: str = "", timeout_s: float = PATIENCE_S) -> Any:
    """Wait until `holds` (a function, or an async one) is true; returns what it said. Fails after `timeout_s`."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        said = holds()
        if isinstance(said, Awaitable):
            said = await said
        if said:
            return said
        assert asyncio.get_running_loop().time() < deadline, f"in vain: {what or holds}"
        await asyncio.sleep(0.02)


async def suspend(process: ManagedProcess) -> None:
    """Stop a process where it stands; returns when all its threads have stopped."""
    process.signal(signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


class Process(ManagedProcess):
    """A Python program of ours; it is ready when its health port says so."""

    def __init__(self, name: str, argv: Sequence[str], env: dict[str, str], folder: Path) -> None:
        super().__init__(name, StateFile(folder / f"{name}.json"))
        self._argv = (sys.executable, *argv)
        self.env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **env}
        self.log = folder / f"{name}.log"
        self.port = 0

    async def prepare(self) -> Program:
        self.port = self.state.port(f"{self.name}.health")
        return Program(self._argv, {**self.env, "COUNTERPOINT_HEALTH_PORT": str(self.port)}, self.log)

    async def answers(self) -> bool:
        return await http_ok(self.port, "/readyz")


@dataclass
class SmallHouse:
    """All of it. Each test uses a project of its own."""

    folder: Path
    nats: NatsServer
    memory: Process
    record: "asyncpg.Pool[asyncpg.Record]"

    def settings(self, user: str, **changes: Any) -> BusSettings:
        return BusSettings(
            nats_url=self.nats.url,
            nats_user=user,
            nats_password=PASSWORDS[user],
            **{"rpc_timeout_s": 1.0, "log_level": "warning"} | changes,
        )

    def service(self, name: str, **changes: Any) -> Service:
        """A service to register handlers with; `alive` brings it to life."""
        return Service(name, self.settings(name, **changes), specs())

    @asynccontextmanager
    async def client(self, user: str) -> AsyncIterator[Client]:
        """A plain NATS client logged in as `user`."""
        client = await nats_client.connect(
            self.nats.url,
            user=user,
            password=PASSWORDS[user],
            inbox_prefix=subjects.inbox_prefix(user).encode(),
            error_cb=_quiet,
        )
        try:
            yield client
        finally:
            await client.close()

    def process(self, name: str, argv: Sequence[str]) -> Process:
        """A service as a process of its own."""
        env = {
            "COUNTERPOINT_NATS_URL": self.nats.url,
            "COUNTERPOINT_NATS_USER": name,
            "COUNTERPOINT_NATS_PASSWORD": PASSWORDS[name],
            "COUNTERPOINT_RPC_TIMEOUT_S": "1",
            "PYTHONPATH": str(Path(__file__).parent.parent),
        }
        return Process(name, argv, env, self.folder)

    async def provision(self) -> None:
        await provision(self.nats.url, "provisioner", PASSWORDS["provisioner"], specs())

    async def wipe_bus(self) -> None:
        """Lose all that the bus holds."""
        await self.nats.kill()
        self.nats.wipe()
        await self.nats.start()
        await self.provision()

    async def dead_letters(self, project: str) -> list[dict[str, Any]]:
        rows = await self.record.fetch(
            "SELECT body FROM records WHERE project = $1 AND store = 'dead_letters' ORDER BY seq", project
        )
        return [json.loads(row["body"]) for row in rows]

    async def finished(self, project: str, consumer: str) -> int:
        """Return the number of messages of the project that this consumer has finished."""
        count = "SELECT count(*) FROM inbox WHERE project = $1 AND consumer = $2 AND last AND message_id <> ''"
        return int(await self.record.fetchval(count, project, consumer))

    async def acknowledged(self, *names: str) -> None:
        """Wait until nothing of these consumers of TASKS is waiting, under way or to be redelivered."""
        async with self.client("provisioner") as client:
            js = client.jetstream()

            async def rest() -> bool:
                infos = [await js.consumer_info(subjects.TASKS, name) for name in names]
                return all(not (info.num_ack_pending or info.num_pending) for info in infos)

            await eventually(rest, f"{names} to have acknowledged all")

    async def actions(self, project: str) -> int:
        """Return the number of actions recorded in the project."""
        count = "SELECT count(*) FROM records WHERE project = $1 AND store = 'actions'"
        return int(await self.record.fetchval(count, project))

    async def sent(self, project: str, message_type: str) -> list[dict[str, Any]]:
        """Bodies of the messages of a type in the log."""
        rows = await self.record.fetch(
            "SELECT body FROM messages WHERE project = $1 AND type = $2 ORDER BY seq", project, message_type
        )
        return [json.loads(row["body"]) for row in rows]

    async def unfinished(self) -> int:
        """Deliveries of all consumers that are neither acknowledged nor in the record."""
        return int(await self.record.fetchval("SELECT count(*) FROM pending"))


async def _quiet(error: Exception) -> None:
    """A refused publish is told asynchronously; tests look at its effect."""


@asynccontextmanager
async def small_house(folder: Path, **memory_env: str) -> AsyncIterator[SmallHouse]:
    async with AsyncExitStack() as stack:
        nats, postgres = await asyncio.gather(
            stack.enter_async_context(run_nats(folder / "nats", nats_config(PASSWORDS))),
            stack.enter_async_context(run_postgres(folder / "postgres")),
        )
        await migrate(postgres.urls.owner)
        key = SigningKey.generate(1)
        env = {
            "COUNTERPOINT_NATS_URL": nats.url,
            "COUNTERPOINT_NATS_USER": "memory",
            "COUNTERPOINT_NATS_PASSWORD": PASSWORDS["memory"],
            "COUNTERPOINT_POSTGRES_URL": postgres.urls.memory,
            "COUNTERPOINT_AUDIT_KEY": "5e" * 32,
            "COUNTERPOINT_SIGNING_KEYS": json.dumps([{"id": 1, "private": key.private.get_secret_value()}]),
            "COUNTERPOINT_RPC_TIMEOUT_S": "1",
            "COUNTERPOINT_LEASE_RETRY_S": "0.05",
            "COUNTERPOINT_SWEEP_AGE_S": "0.5",
            "COUNTERPOINT_RECONCILE_EVERY_S": "0.5",
            **memory_env,
        }
        memory = Process("memory", ("-m", "counterpoint.memory.main"), env, folder)
        record = await asyncpg.create_pool(
            postgres.urls.admin.rsplit("/", 1)[0] + "/counterpoint", min_size=1, max_size=2
        )
        stack.push_async_callback(record.close)
        house = SmallHouse(folder, nats, memory, record)
        await house.provision()
        await stack.enter_async_context(running(memory))
        yield house


@asynccontextmanager
async def alive(*services: Service) -> AsyncIterator[None]:
    """The services live in this process, ready, for the length of the block."""
    lives = [asyncio.create_task(service.live(), name=service.name) for service in services]
    try:
        await eventually(
            lambda: any(life.done() for life in lives) or all(not service.unready_reasons() for service in services),
            "services to be ready",
        )
        for life in lives:
            if life.done():
                life.result()
        yield
    finally:
        for service in services:
            service.stop()
        await asyncio.gather(*lives)


def project() -> str:
    """A project of its own."""
    return f"p{new_id()[-12:]}"


async def route(
    router: Service,
    in_project: str,
    description: str = "why",
    task_id: str | None = None,
    traceparent: str | None = None,
) -> CommitReply:
    """Send a `TaskRouted`, as the router does."""
    routed = TaskRouted(
        task_id=task_id or new_id(),
        project=in_project,
        task=SubmitTask(kind="question", description=description),
        submitted_by="tester",
        submitted_by_kind="system",
        submitted_at=utc_now(),
        lane="answer",
        reason="a test",
        action_id="a",
    )
    memory = router.memory(in_project, None)
    memory.origin = memory.origin.model_copy(update={"traceparent": traceparent})
    return await memory.step(Commit(messages=(send(routed),)))


def opened(message: TaskRouted, memory: Memory) -> Commit:
    """The manager's commit on a routed task: the record, an action, and work for the developer."""
    task = Task(
        task_id=message.task_id,
        project=message.project,
        kind="question",
        state="working",
        description=message.task.description,
        submitted_by=message.submitted_by,
        submitted_at=message.submitted_at,
    )
    action = act(memory, "manager", "plan", "to be worked on")
    delegated = TaskDelegated(
        task_id=message.task_id,
        project=message.project,
        session_id="s",
        attempt=1,
        task=message.task,
        lane="answer",
    )
    return Commit(
        writes=(put("tasks", message.task_id, task), put("actions", action.action_id, action)),
        messages=(send(delegated),),
    )


def noted(memory: Memory) -> Commit:
    """The least effect: one action."""
    action = act(memory, "manager", "plan", "seen")
    return Commit(writes=(put("actions", action.action_id, action),))


def worked(message: TaskDelegated, memory: Memory) -> Commit:
    """The developer's commit: an action, and word to the manager."""
    action = act(memory, "developer", "answer", "looked")
    done = TaskWorked(task_id=message.task_id, attempt=1, outcome="answered", text="so", action_id=action.action_id)
    return Commit(writes=(put("actions", action.action_id, action),), messages=(send(done),))
