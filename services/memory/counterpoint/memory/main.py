"""The memory service: the only door to all data, and the only publisher."""

import asyncio
import ctypes
import gc
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.bus.first_connection import RefusedByServer, end_job
from counterpoint.bus.logs import configure
from counterpoint.client import Gateway
from counterpoint.guard.capabilities import Keyring
from counterpoint.guard.policy import Policy, policy
from counterpoint.memory.access.principals import Principals
from counterpoint.memory.access.tokens import Tokens
from counterpoint.memory.audit.export import CheckpointCopy, CheckpointFile, CheckpointStream
from counterpoint.memory.audit.note import NoteKey
from counterpoint.memory.audit.sequencer import Sequencer
from counterpoint.memory.cache.valkey import Valkey
from counterpoint.memory.commit.announcements import Announcements
from counterpoint.memory.commit.committer import Committer, LoggedMessage
from counterpoint.memory.commit.inbound import InboundMessages
from counterpoint.memory.commit.metrics import observe
from counterpoint.memory.commit.relay import Relay
from counterpoint.memory.embedding import folder
from counterpoint.memory.embedding.files import GRAPHS, MODEL_ID, ModelSettings
from counterpoint.memory.embedding.folder_embedder import FolderEmbedder
from counterpoint.memory.embedding.model import Embedder, EmbeddingModel
from counterpoint.memory.embedding.remote import RemoteEmbedder
from counterpoint.memory.ingest.entities import KnowledgeGraph
from counterpoint.memory.ingest.follower import Follower
from counterpoint.memory.ingest.model_relations import ModelRelations
from counterpoint.memory.ingest.plan_documents import PlanDocuments
from counterpoint.memory.ingest.providers import provider_writes
from counterpoint.memory.maintenance.advisories import Advisories
from counterpoint.memory.maintenance.reconcile import Reconciler
from counterpoint.memory.maintenance.retention import RETENTION_EVERY_S, delete_expired
from counterpoint.memory.maintenance.runner import JobRunner, MaintenanceJob
from counterpoint.memory.maintenance.seeds import plant
from counterpoint.memory.operations.erasure import Erasures
from counterpoint.memory.projection.projections import embedded_or_server
from counterpoint.memory.provenance.read_sets import OriginCache
from counterpoint.memory.query.epochs import Epochs
from counterpoint.memory.record.database import PLANNED_ONCE, Database, Lease, retry_while_transient
from counterpoint.memory.record.disk import DiskSpace
from counterpoint.memory.record.owner_connection import LoginWatch, check_login
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.release import check_release
from counterpoint.memory.rpc.health import consumers_of
from counterpoint.memory.search.corpus_cache import CorpusCache
from counterpoint.memory.search.model_registry import ModelName, ModelRegistry
from counterpoint.memory.search.rerank import Reranker
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.memory.settings import MemorySettings
from counterpoint.memory.wiring import Components, CoreComponents, SearchComponents, SigningKeys
from counterpoint.proto import subjects
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

_EMBEDDING_MODEL, _RERANKER = "COUNTERPOINT_EMBEDDING_MODEL", "COUNTERPOINT_RERANKER"
_PR_SET_DUMPABLE = 4
_RECORD_POOL = 4
"""Connections reserved for committer, relay and sequencer, so that writes never wait for reads."""


class RemoteModels:
    """Models called through the manager's gateway, and the connections to it."""

    def __init__(self, settings: MemorySettings, tokens: Tokens) -> None:
        self._settings = settings
        self._tokens = tokens
        self._cache_dir = settings.model_cache_dir or ModelSettings().model_cache_dir
        self._gateways: list[Gateway] = []

    def embedding(self, model: ModelName) -> EmbeddingModel:
        """Return the embedding model of a name. Raises `Permanent` `invalid`."""
        if model.name in GRAPHS:
            return Embedder(self._cache_dir, model=model.name)
        if model.name.startswith(folder.SCHEME):
            model_folder = folder.folder_of(model.name, _EMBEDDING_MODEL)
            folder.remember(model_folder, self._cache_dir)
            return FolderEmbedder(model_folder, self._settings.own_dimensions)
        if folder.ID.fullmatch(model.name):
            return FolderEmbedder(folder.remembered(model.name, self._cache_dir, _EMBEDDING_MODEL))
        if self._settings.gateway_url is None:
            raise Permanent(ErrorCode.INVALID, (Problem(field="COUNTERPOINT_GATEWAY_URL", problem="is not set"),))
        gateway = self._opened(Gateway(self._settings.gateway_url, embedding_model=model.name))
        return RemoteEmbedder(gateway, self._tokens, model.dimensions or self._settings.embedding_dimensions)

    def relations(self, database: Database, policy: Policy, committer: Committer, erasures: Erasures) -> list[Follower]:
        """Return the follower that has a model extract relations, if one is configured."""
        settings = self._settings
        if not (settings.model and settings.gateway_url and settings.relations_tokens):
            return []
        gateway = self._opened(Gateway(settings.gateway_url, model=settings.model))
        return [ModelRelations(database, policy, committer, erasures.lock, gateway, self._tokens)]

    def _opened(self, gateway: Gateway) -> Gateway:
        self._gateways.append(gateway)
        return gateway

    async def close(self) -> None:
        """Close the connections."""
        for gateway in self._gateways:
            await gateway.close()


class MemoryProcess:
    """One memory process: constructed at once, active as soon as it has the lease."""

    def __init__(self, settings: MemorySettings) -> None:
        self._settings = settings
        self.service = Service("memory", settings)
        self._rules = policy()
        url, timeout_s = settings.postgres_url.get_secret_value(), settings.postgres_timeout_s
        self._database = Database(url, pool_size=settings.postgres_pool, connect_timeout_s=timeout_s)
        self._record = Database(url, pool_size=_RECORD_POOL, connect_timeout_s=timeout_s, settings=PLANNED_ONCE)
        self._lease = Lease(url, f"{os.uname().nodename}:{os.getpid()}")
        login = LoginWatch(url)
        for part in (self._database, self._record, self._lease):
            part.on_refusal.append(login.refused)
        self.service.add_task(login.run, login.missing)
        ring = Keyring(settings.signing_keys)
        keys = SigningKeys(tuple(settings.signing_keys), ring, Tokens(self._rules, ring, settings.provider_clearance))
        core = self._core(keys)
        searching = self._searching(keys)
        self._parts = Components(
            self._rules,
            keys,
            core,
            searching,
            read_set_items=settings.read_set_items,
            recall_share=settings.recall_share,
        )
        parts = self._parts
        knowledge = KnowledgeGraph(self._record, self._rules, self._committer, parts.vectors, parts.erasures.lock)
        self._announcements = Announcements(self.service.connection)
        self._followers: list[Follower] = [
            knowledge,
            PlanDocuments(self._database, parts.ingest),
            *self._outside.relations(self._database, self._rules, self._committer, parts.erasures),
        ]
        retention = timedelta(seconds=settings.retention_s)
        self._reconciler = Reconciler(self._database, self.service.connection, self._relay, retention)
        every_s = settings.reconcile_every_s
        self._maintenance = JobRunner(
            (
                MaintenanceJob("reconcile", every_s, self._reconciler.reconcile),
                MaintenanceJob("settle", every_s, parts.takebacks.settle),
                MaintenanceJob("retention", RETENTION_EVERY_S, partial(delete_expired, self._database, retention)),
                MaintenanceJob("age", RETENTION_EVERY_S, partial(self._age, parts.erasures)),
            )
        )
        reconcile_soon = partial(self._maintenance.run_soon, "reconcile")
        self.service.connection.on_reconnect.append(reconcile_soon)
        self._relay.on_cut.append(reconcile_soon)
        self._ready = asyncio.Event()
        self._since = datetime.now(UTC)
        self.service.add_task(self._answer, lambda: None if self._ready.is_set() else "lease")
        self.service.add_task(self._committer.disk.watch, lambda: "disk" if self._committer.disk.low else None)

    def _core(self, keys: SigningKeys) -> CoreComponents:
        settings, connection = self._settings, self.service.connection
        origins = OriginCache(settings.read_set_items // 4)
        self._causes = InboundMessages(self._database, self._rules, origins, self._acquisition)
        self._epochs = Epochs(self._database, self._rules, self._acquisition)
        self._relay = Relay(
            self._record,
            connection,
            self._rules,
            keys.ring,
            origins,
            sweep_age_s=settings.sweep_age_s,
            capability_life_s=settings.capability_life_s,
        )
        self._committer = Committer(
            self._record,
            lambda: self._lease.epoch,
            self._relay.capability,
            self._applied,
            on_begin=self._begin,
            queue_limit=settings.commit_queue,
            disk=DiskSpace(settings.data_dir, settings.disk_reserve_bytes),
        )
        copies: tuple[CheckpointCopy, ...] = (CheckpointStream(connection),)
        if settings.checkpoints_dir is not None:
            copies = (CheckpointFile(settings.checkpoints_dir), *copies)
        self._sequencer = Sequencer(self._record, NoteKey(settings.audit_key.get_secret_value()), copies)
        consumers = consumers_of(connection, self._rules)
        return CoreComponents(
            self._database, self._committer, self._causes, self._epochs, self._sequencer, copies, consumers
        )

    def _searching(self, keys: SigningKeys) -> SearchComponents:
        settings = self._settings
        valkey = None
        if settings.valkey_url is not None:
            secret = bytes.fromhex(keys.signing[0].private.get_secret_value())
            valkey = Valkey(settings.valkey_url.get_secret_value(), secret)
        self._outside = RemoteModels(settings, keys.tokens)
        self._corpus_cache = CorpusCache(self._database.reading)
        first = self._outside.embedding(ModelName(settings.embedding_model or MODEL_ID))
        reranker = Reranker(folder.folder_of(settings.reranker, _RERANKER)) if settings.reranker else None
        search = SearchEngine(
            settings.model_cache_dir, valkey, embedder=first, corpus_cache=self._corpus_cache, reranker=reranker
        )
        models = ModelRegistry(self._database, search, self._outside.embedding, lambda: self._lease.epoch)
        tiers = embedded_or_server(
            self._database,
            self._rules,
            search,
            settings.data_dir or Path(tempfile.mkdtemp(prefix="counterpoint-")),
            settings.qdrant_url.get_secret_value() if settings.qdrant_url else None,
            settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None,
        )
        self._search = SearchComponents(search, models, tiers, valkey)
        return self._search

    def _acquisition(self) -> int | None:
        return self._lease.valid_acquisition

    def _begin(self, steps: Sequence[CommitPlan]) -> None:
        self._causes.begin(steps)
        self._epochs.begin(steps)

    def _applied(self, steps: Sequence[CommitPlan], messages: Sequence[LoggedMessage]) -> None:
        for message in messages:
            self._causes.sent_version(message.row.id, message.task_version)
        self._causes.applied(steps)
        self._epochs.applied(steps)
        self._search.search.applied(steps)
        self._relay.sent(messages)
        self._announcements.applied(steps)
        self._search.tiers.applied(steps)
        self._parts.reembedding.applied(steps)
        for follower in self._followers:
            follower.applied(steps)
        self._sequencer.wake()
        for step in steps:
            observe(step)

    async def _age(self, erasures: Erasures) -> None:
        """Erase what is older than its retention, in portions between the other jobs."""
        if await erasures.age():
            self._maintenance.run_soon("age")

    async def _answer(self) -> None:
        """Take the lease, answer requests, and run the background work."""
        await self._lease.acquire(self._settings.lease_retry_s)
        self._since = datetime.now(UTC) - timedelta(seconds=self._settings.retention_s)
        for begin in (self._database.open, self._check_release, self._record.open, self._remember):
            await retry_while_transient(begin)
        await self._reconciler.learn()
        server, respond = self._parts.server, self.service.connection.respond
        await respond(subjects.query("*"), server.query)
        await respond(subjects.commit("*"), server.commit)
        await respond(subjects.command("*"), server.command)
        await respond(subjects.ingest("*"), server.ingest)
        await respond(subjects.put("*"), server.put)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._committer.run())
            await retry_while_transient(self._finish)
            self._ready.set()
            # Objects that exist by now live as long as the process; the garbage collector need not traverse them.
            gc.freeze()
            group.create_task(self._relay.run())
            group.create_task(self._announcements.run())
            group.create_task(self._sequencer.run())
            group.create_task(self._maintenance.run())
            for follower in self._followers:
                group.create_task(follower.run())
            group.create_task(Advisories(self.service.connection, self._rules, self._committer).run())
            group.create_task(self._lease.watch())
            group.create_task(self._search.tiers.run())
            group.create_task(self._parts.reembedding.run())
            group.create_task(self._parts.ingest.delete_orphans())

    async def _check_release(self) -> None:
        async with self._database.connection() as connection:
            await check_release(connection)

    async def _remember(self) -> None:
        await self._parts.takebacks.remember(self._since)
        await self._search.models.begin()

    async def _finish(self) -> None:
        database, rules, committer = self._database, self._rules, self._committer
        if self._settings.admin_token is not None:
            first = Principals.administrator(self._settings.admin_token.get_secret_value())
            await plant(database, rules, committer, subjects.DEFAULT_PROJECT, (first,))
        await plant(database, rules, committer, subjects.SHARED_PROJECT, provider_writes())
        await self._parts.erasures.finish()
        await self._parts.takebacks.finish(self._since)

    async def close(self) -> None:
        """Close all parts."""
        await self._parts.queries.sampler.close()
        await self._corpus_cache.close()
        await self._search.tiers.close()
        await self._outside.close()
        if self._search.valkey is not None:
            await self._search.valkey.close()
        await self._database.close()
        await self._record.close()
        await self._lease.release()


async def serve(settings: MemorySettings) -> None:
    """Wait for the lease, then answer until SIGTERM. Raises `RefusedByServer` for a login that the database refuses."""
    configure("memory", settings.log_level)
    await check_login(settings.postgres_url.get_secret_value())
    process = MemoryProcess(settings)
    try:
        await process.service.run()
    finally:
        await process.close()


def undumpable() -> None:
    """Keep other processes of the same user from reading this one's memory, where the keys are: above all those that
    read documents."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def run() -> None:
    """Run the process."""
    undumpable()
    try:
        bus.run(serve(MemorySettings()))
    except RefusedByServer as refused:
        end_job(refused)


if __name__ == "__main__":
    run()
