"""The engines and the five services of one data folder, started in order and supervised."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic

import structlog

from counterpoint.local.credentials import Credentials, load_credentials
from counterpoint.local.disk_space import reserve_streams
from counterpoint.local.doctor.servers import examine_external, refuse_unfit
from counterpoint.local.doctor.variables import examine_settings
from counterpoint.local.endpoints import Endpoints, write_endpoints
from counterpoint.local.engine import Engine
from counterpoint.local.engine_choice import choose_engines
from counterpoint.local.forking import Template
from counterpoint.local.listen_addresses import HTTP_PORT, ListenAddresses
from counterpoint.local.listeners import Listeners
from counterpoint.local.lock import acquire_lock
from counterpoint.local.nats import NatsServer, policy_authorization
from counterpoint.local.postgres import PostgresUrls, bootstrap
from counterpoint.local.private_files import NO_SPACE, private_folder
from counterpoint.local.process import ManagedProcess, Program, run, stop_leftovers
from counterpoint.local.service import (
    COMMANDS,
    NATS_USERS,
    SERVICES,
    JobName,
    ServiceName,
    ServiceParameters,
    ServiceProcess,
    base_environment,
    endpoints_of,
    environment,
)
from counterpoint.local.settings import local_settings
from counterpoint.local.state_file import RESTORING, ProcessIdentity, StateFile
from counterpoint.local.supervisor import Supervisor, together
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient

log = structlog.get_logger(__name__)

Progress = Callable[[str, float], None]
"""A callback for each finished stage: its name and duration in seconds."""

INDEX_TIMEOUT_S = 6 * 3600
INDEX_EVERY_S = 600.0


class Stack:
    """One running Counterpoint. Start and stop it once, on the main thread's event loop.

    `addresses` take precedence over `http_port`, whose 0 selects a free port. Tests pass other `commands` of services
    and another `authorization` of the bus; services of older releases need `hold_sockets=False`.
    """

    def __init__(
        self,
        data_dir: Path,
        http_port: int = HTTP_PORT,
        inspect: bool = False,
        progress: Progress = lambda stage, seconds: None,
        commands: Mapping[ServiceName | JobName, tuple[str, ...]] = COMMANDS,
        authorization: Callable[[dict[str, str]], str] = policy_authorization,
        addresses: ListenAddresses | None = None,
        hold_sockets: bool = True,
    ) -> None:
        self.data_dir = private_folder(data_dir)
        self._addresses = addresses or ListenAddresses(http_port)
        self._inspect = inspect
        self._hold_sockets = hold_sockets
        self._listeners: Listeners | None = None
        self._progress = progress
        self._commands = commands
        self._authorization = authorization
        self._engines: dict[str, Engine] = {}
        self._services: dict[str, ServiceProcess] = {}
        self._supervisor = Supervisor(self._write_endpoints, self._back)
        self._streams_bytes = local_settings().streams_bytes
        self._lock: int | None = None
        self._state: StateFile | None = None
        self._wiring: ServiceParameters | None = None
        self._indexing: asyncio.Task[None] | None = None
        self._template: Template | None = None
        self._complete = False

    async def start(self) -> None:
        """Start everything and return when it is ready.

        Raises `AlreadyRunning`, `Permanent` when the HTTP port is taken, the disk is full, a file is damaged or a
        service refuses its settings, and `Transient` with the end of its log when a process fails. After a failure
        nothing runs.
        """
        self._lock = acquire_lock(self.data_dir)
        try:
            with self._stage("ready"):
                await self._start(StateFile(self.data_dir / "state.json"))
        except Transient:
            await self.stop()
            refuse_unfit(await examine_settings(self.data_dir, os.environ), ErrorCode.INVALID)
            raise
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop services, then NATS and Valkey, then PostgreSQL, and unlock the folder."""
        if self._lock is None:
            return
        self._complete = False
        (self.data_dir / "endpoints.json").unlink(missing_ok=True)
        await self._close_template()
        if self._indexing is not None:
            self._indexing.cancel()
            await asyncio.wait([self._indexing])
        await self._supervisor.stop(self._services.values())
        await self._supervisor.stop(engine for name, engine in self._engines.items() if name != "postgres")
        await self._supervisor.stop(engine for name, engine in self._engines.items() if name == "postgres")
        if self._listeners is not None:
            self._listeners.close()
        if self._state is not None:
            self._state.supervised_by(None)
        os.close(self._lock)
        self._lock = None

    async def watch(self) -> None:
        """Wait without limit; raises when the supervision itself fails."""
        await self._supervisor.watch()

    async def migrate(self, commands: Mapping[ServiceName | JobName, tuple[str, ...]] | None = None) -> None:
        """Migrate the database and provision the streams while services run. Raises `Transient` if a job fails.

        `commands` are those of another release, whose jobs are used from then on.
        """
        jobs: tuple[JobName, ...] = ("migrate", "provision", "index")
        self._commands = {**self._commands, **{job: commands[job] for job in jobs if commands is not None}}
        await together(self._run_job("migrate"), self._run_job("provision"))

    async def replace(
        self, name: ServiceName, command: tuple[str, ...] | None = None, *, new_password: bool = False
    ) -> None:
        """Stop a service, which finishes its deliveries, and start it again, by another command if one is given.

        The credentials are read again. Raises `Transient` if it does not become ready; it is restarted until it does.
        """
        old, state, before = self._services[name], self._state, self._service_parameters().credentials
        assert state is not None
        await self._supervisor.release(old)
        await old.stop()
        self._commands = {**self._commands, name: command or self._commands[name]}
        stored = self._load_credentials()
        passwords = {**before.nats, name: stored.nats[name]} if new_password else before.nats
        if new_password:
            self._reload_bus(passwords)
        credentials = stored.model_copy(update={"nats": passwords})
        self._wiring = replace(self._service_parameters(), credentials=credentials)
        service = self._services[name] = ServiceProcess(name, self._commands[name], self._wiring, state)
        try:
            await service.start()
        finally:
            self._supervisor.keep(service)
            self._write_endpoints()

    async def change_other_passwords(self) -> None:
        """Give every login of the bus that is not a service's the password in the credentials file."""
        self._reload_bus(self._load_credentials().nats)
        await self._run_job("provision")

    def kill(self, name: str) -> None:
        """Kill an engine or service by SIGKILL, simulating a fault; the supervisor restarts it."""
        self._child(name).signal(signal.SIGKILL)

    async def ready(self, name: str) -> None:
        """Wait until the named process is ready."""
        await self._child(name).ready.wait()

    async def wipe(self, engine: str) -> None:
        """Kill an engine, delete its data and restart it, simulating a lost disk."""
        child = self._engines[engine]
        await self._supervisor.release(child)
        await child.kill()
        child.wipe()
        await child.start()
        await self._back(engine)
        self._supervisor.keep(child)
        self._write_endpoints()

    @property
    def endpoints(self) -> Endpoints:
        """Return the present addresses and processes."""
        return endpoints_of(self._service_parameters(), self._services, self._engines, inspect=self._inspect)

    async def _start(self, state: StateFile) -> None:
        self._state = state
        if (self.data_dir / RESTORING).exists():
            problem = "a restore into it was interrupted: run it again, or delete the folder"
            raise Permanent(ErrorCode.RESTORE_UNFINISHED, (Problem(field=str(self.data_dir), problem=problem),))
        (self.data_dir / "endpoints.json").unlink(missing_ok=True)
        state.supervised_by(ProcessIdentity.of(os.getpid()))
        with self._stage("sweep"):
            await stop_leftovers(state)
        credentials = self._load_credentials()
        given = self._addresses
        listeners = self._listeners = Listeners(state)
        http_port = listeners.port("http", given.http_host, given.http_port)
        lineage_port = listeners.port("lineage", given.lineage_host, given.lineage_port)
        gateway_port = listeners.port("gateway", given.gateway_host, given.gateway_port)
        listening: dict[str, int] = {}
        if self._hold_sockets:
            listening["router"] = listeners.open("http", given.http_host, http_port)
            listening["lineage"] = listeners.open("lineage", given.lineage_host, lineage_port)
        refuse_unfit(await examine_external(local_settings(), credentials, os.environ))
        if sys.platform.startswith("linux"):
            self._template = await Template.start(base_environment(os.environ), self.data_dir / "logs" / "template.log")
        if local_settings().nats_url is None:
            self._streams_bytes = reserve_streams(self.data_dir, self._streams_bytes)
        self._engines, urls = choose_engines(self.data_dir, state, credentials, self._authorization)
        self._wiring = ServiceParameters(
            data_dir=self.data_dir,
            nats_url=urls["nats"],
            postgres=PostgresUrls.of(urls["postgres"], credentials.postgres),
            valkey_url=urls["valkey"],
            http_port=http_port,
            lineage_port=lineage_port,
            gateway_port=gateway_port,
            credentials=credentials,
            inherited=os.environ,
            http_host=given.http_host,
            lineage_host=given.lineage_host,
            gateway_host=given.gateway_host,
            tls_cert=given.tls_cert,
            tls_key=given.tls_key,
            nats_creds=local_settings().nats_creds if local_settings().nats_url else None,
            streams_bytes=self._streams_bytes,
            listeners=listening,
        )
        caches = [self._start_child(engine) for name, engine in self._engines.items() if name == "valkey"]
        await together(self._start_bus(), self._start_record(credentials), *caches)
        self._services = {
            name: ServiceProcess(name, self._commands[name], self._wiring, state, self._template) for name in SERVICES
        }
        # The others load their modules while memory starts, and are ready after it.
        await together(*(self._start_child(service) for service in self._services.values()))
        await self._close_template()
        self._complete = True
        self._write_endpoints()
        self._indexing = asyncio.create_task(self._index())

    async def _close_template(self) -> None:
        template, self._template = self._template, None
        if template is not None:
            await template.close()

    def _load_credentials(self) -> Credentials:
        logins = dict.fromkeys((*NATS_USERS, *local_settings().publishers))
        return load_credentials(self.data_dir / "secrets.json", tuple(logins))

    async def _start_bus(self) -> None:
        """Start NATS and create its streams."""
        if (nats := self._engines.get("nats")) is not None:
            await self._start_child(nats)
        await self._run_job("provision")

    async def _start_record(self, credentials: Credentials) -> None:
        """Start PostgreSQL, or prepare an external one, and migrate the database."""
        if (postgres := self._engines.get("postgres")) is not None:
            await self._start_child(postgres)
        else:
            urls, log_path = self._service_parameters().postgres, self.data_dir / "logs" / "postgres.log"
            await bootstrap(urls, credentials.postgres, log_path, shared_server=True)
        await self._run_job("migrate")

    async def _start_child(self, child: ManagedProcess) -> None:
        with self._stage(child.name):
            await child.start()
        self._supervisor.keep(child)

    async def _run_job(self, name: JobName) -> None:
        with self._stage(name):
            await run(name, self._job(name))

    def _job(self, name: JobName) -> Program:
        env = environment(name, self._service_parameters())
        log_path = self.data_dir / "logs" / f"{name}.log"
        return Program(argv=self._commands[name], env=env, log=log_path, forker=self._template)

    async def _index(self) -> None:
        """Create missing indexes of large projects while the stack runs; without them queries are slower."""
        while True:
            try:
                await run("index", self._job("index"), INDEX_TIMEOUT_S)
            except Transient as error:
                log.warning("index.failed", reason=str(error))
            await asyncio.sleep(INDEX_EVERY_S)

    async def _back(self, name: str) -> None:
        """Provision streams and consumers again after NATS restarted, possibly without its store."""
        if name == "nats" and self._wiring is not None:
            await self._run_job("provision")

    def _reload_bus(self, passwords: dict[str, str]) -> None:
        """Give the embedded bus other passwords; that of an external one is its administrator's."""
        wiring = self._service_parameters()
        self._wiring = replace(wiring, credentials=wiring.credentials.model_copy(update={"nats": passwords}))
        server = self._engines.get("nats")
        if isinstance(server, NatsServer):
            server.reload(self._authorization(passwords))
        self._write_endpoints()

    def _write_endpoints(self) -> None:
        if not self._complete:
            return
        try:
            write_endpoints(self.data_dir / "endpoints.json", self.endpoints)
        except OSError as full:
            if full.errno not in NO_SPACE:
                raise
            log.error("endpoints.unwritten", reason=full.strerror)

    def _child(self, name: str) -> ManagedProcess:
        return self._engines[name] if name in self._engines else self._services[name]

    def _service_parameters(self) -> ServiceParameters:
        if self._wiring is None:
            raise RuntimeError("the stack has not been started")
        return self._wiring

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        since = monotonic()
        yield
        self._progress(name, monotonic() - since)
