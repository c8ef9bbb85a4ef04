"""The memory service: the one door to everything that is kept, and the only one that publishes."""

import asyncio
import gc
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.guard.capabilities import Keyring
from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.guard.policy import policy
from counterpoint.memory.advisories import Advisories
from counterpoint.memory.answers import Answers
from counterpoint.memory.audit.auditor import Auditor
from counterpoint.memory.audit.export import Copy, File, Stream
from counterpoint.memory.audit.note import NoteKey
from counterpoint.memory.audit.sequencer import Sequencer
from counterpoint.memory.blobs import Blobs
from counterpoint.memory.causes import Causes
from counterpoint.memory.committer import Committer, Sent
from counterpoint.memory.database import PLANNED_ONCE, Database, Lease, patiently
from counterpoint.memory.door import Door
from counterpoint.memory.embeddings import Embeddings
from counterpoint.memory.epochs import Epochs
from counterpoint.memory.erasure import Erasures
from counterpoint.memory.follower import Follower
from counterpoint.memory.handed import Handed
from counterpoint.memory.influence import Influence
from counterpoint.memory.ingest import Ingest
from counterpoint.memory.knowledge import Knowledge
from counterpoint.memory.letters import Letters
from counterpoint.memory.model_relations import ModelRelations
from counterpoint.memory.models import Models, Named
from counterpoint.memory.past import Past
from counterpoint.memory.principals import Principals
from counterpoint.memory.provenance import Origins, Reads
from counterpoint.memory.providers import provider_writes
from counterpoint.memory.queries import Queries
from counterpoint.memory.reconcile import Reconciler
from counterpoint.memory.reembed import Reembedding
from counterpoint.memory.relay import Relay
from counterpoint.memory.releases import Releases
from counterpoint.memory.retrieval import folder
from counterpoint.memory.retrieval.embed import Embedder, EmbeddingModel
from counterpoint.memory.retrieval.folder_embedder import FolderEmbedder
from counterpoint.memory.retrieval.held import Held
from counterpoint.memory.retrieval.model import GRAPHS, MODEL_ID, ModelSettings
from counterpoint.memory.retrieval.remote import RemoteEmbedder
from counterpoint.memory.retrieval.rerank import Reranker
from counterpoint.memory.revocations import Revocations
from counterpoint.memory.room import Room
from counterpoint.memory.rows import Prepared
from counterpoint.memory.search import Search
from counterpoint.memory.seeds import plant
from counterpoint.memory.settings import MemorySettings
from counterpoint.memory.takeback import TakeBacks
from counterpoint.memory.telemetry import observe
from counterpoint.memory.tiers.tiers import embedded_or_server
from counterpoint.memory.tokens import Tokens
from counterpoint.memory.valkey import Valkey
from counterpoint.proto import subjects
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.recall import Gateway

_EMBEDDING_MODEL, _RERANKER = "COUNTERPOINT_EMBEDDING_MODEL", "COUNTERPOINT_RERANKER"
_RECORD_POOL = 4
"""Connections of committer, relay and sequencer alone: what is written never waits behind what is read."""


async def serve(settings: MemorySettings) -> None:
    """Wait for the lease, then answer until SIGTERM."""
    service = Service("memory", settings)
    rules = policy()
    keyring = Keyring(settings.signing_keys)
    url = settings.postgres_url.get_secret_value()
    database = Database(url, pool_size=settings.postgres_pool, connect_timeout_s=settings.postgres_timeout_s)
    record = Database(url, pool_size=_RECORD_POOL, connect_timeout_s=settings.postgres_timeout_s, settings=PLANNED_ONCE)
    lease = Lease(url, f"{os.uname().nodename}:{os.getpid()}")
    origins = Origins(settings.read_set_items)
    causes = Causes(database, rules, origins)
    relay = Relay(
        record,
        service.connection,
        rules,
        keyring,
        origins,
        sweep_age_s=settings.sweep_age_s,
        capability_life_s=settings.capability_life_s,
    )

    copies: tuple[Copy, ...] = (Stream(service.connection),)
    if settings.checkpoints_dir is not None:
        copies = (File(settings.checkpoints_dir), *copies)
    sequencer = Sequencer(record, NoteKey(settings.audit_key.get_secret_value()), copies)

    def applied(steps: Sequence[Prepared], messages: Sequence[Sent]) -> None:
        for message in messages:
            causes.sent_version(message.row.id, message.task_version)
        epochs.applied(steps)
        search.applied(steps)
        relay.sent(messages)
        tiers.applied(steps)
        reembedding.applied(steps)
        for follower in followers:
            follower.applied(steps)
        sequencer.soon()
        for step in steps:
            observe(step)

    room = Room(settings.data_dir, settings.disk_reserve_bytes)
    epochs = Epochs(database, rules, lambda: lease.sure)
    committer = Committer(
        record,
        lambda: lease.epoch,
        relay.capability,
        applied,
        began=epochs.began,
        queue_limit=settings.commit_queue,
        room=room,
    )
    valkey = None
    if settings.valkey_url is not None:
        secret = bytes.fromhex(settings.signing_keys[0].private.get_secret_value())
        valkey = Valkey(settings.valkey_url.get_secret_value(), secret)
    tokens = Tokens(rules, keyring, settings.provider_clearance)
    gateways: list[Gateway] = []

    cache_dir = settings.model_cache_dir or ModelSettings().model_cache_dir

    def model(named: Named) -> EmbeddingModel:
        if named.name in GRAPHS:
            return Embedder(cache_dir, model=named.name)
        if named.name.startswith(folder.SCHEME):
            own = folder.folder_of(named.name, _EMBEDDING_MODEL)
            folder.remember(own, cache_dir)
            return FolderEmbedder(own, settings.own_dimensions)
        if folder.ID.fullmatch(named.name):
            return FolderEmbedder(folder.remembered(named.name, cache_dir, _EMBEDDING_MODEL))
        if settings.gateway_url is None:
            raise Permanent("invalid", (Problem(field="COUNTERPOINT_GATEWAY_URL", problem="is not set"),))
        gateways.append(Gateway(settings.gateway_url, embedding_model=named.name))
        return RemoteEmbedder(gateways[-1], tokens, named.dimensions or settings.embedding_dimensions)

    held = Held(database.reading)
    first_model = model(Named(settings.embedding_model or MODEL_ID))
    reranker = Reranker(folder.folder_of(settings.reranker, _RERANKER)) if settings.reranker else None
    search = Search(settings.model_cache_dir, valkey, embedder=first_model, held=held, reranker=reranker)
    models = Models(database, search, model, lambda: lease.epoch)
    tiers = embedded_or_server(settings, database, rules, search)
    principals = Principals(database)
    vectors = Embeddings(database, rules, search)
    influence = Influence(database)
    reembedding = Reembedding(database, models, search, vectors, committer, tiers)
    takebacks = TakeBacks(database, rules, committer, vectors, influence)
    erasures = Erasures(database, rules, committer, influence, sequencer.once)
    followers: list[Follower] = [Knowledge(database, rules, committer, vectors, erasures.alone)]
    if settings.model and settings.gateway_url and settings.relations_tokens:
        gateways.append(Gateway(settings.gateway_url, model=settings.model))
        followers.append(ModelRelations(database, rules, committer, erasures.alone, gateways[-1], tokens))
    releases = Releases(database, Fingerprints(settings.signing_keys))
    blobs = Blobs(database, rules, releases)
    ingest = Ingest(database, rules, vectors, committer, blobs, releases)
    queries = Queries(
        database,
        rules,
        search,
        Past(rules, vectors),
        influence,
        tiers,
        Auditor(database, sequencer, copies),
        sample_share=settings.recall_share,
    )
    door = Door(
        rules,
        keyring,
        database,
        principals,
        queries,
        committer,
        Reads(settings.read_set_items),
        causes,
        vectors,
        ingest,
        Handed(database, rules, vectors, committer, releases),
        blobs,
        Letters(database, rules),
        takebacks,
        erasures,
        releases,
        Answers(rules, epochs, valkey, search),
        Revocations(database),
        tokens,
        reembedding,
    )
    reconciler = Reconciler(
        database,
        service.connection,
        relay,
        influence,
        erasures.age,
        takebacks.settle,
        every_s=settings.reconcile_every_s,
        retention_s=settings.retention_s,
    )
    service.connection.on_reconnect.append(reconciler.soon)
    relay.on_cut.append(reconciler.soon)
    ready = asyncio.Event()

    async def answer() -> None:
        await lease.acquire(settings.lease_retry_s)
        lately = datetime.now(UTC) - timedelta(seconds=settings.retention_s)

        async def remember() -> None:
            await takebacks.remember(lately)
            await models.begin()

        async def finish() -> None:
            if settings.admin_token is not None:
                first = Principals.administrator(settings.admin_token.get_secret_value())
                await plant(database, rules, committer, subjects.DEFAULT_PROJECT, (first,))
            await plant(database, rules, committer, subjects.SHARED_PROJECT, provider_writes())
            await erasures.finish()
            await takebacks.finish(lately)

        for begin in (database.open, record.open, remember):
            await patiently(begin)
        await reconciler.learn()
        await service.connection.respond(subjects.query("*"), door.query)
        await service.connection.respond(subjects.commit("*"), door.commit)
        await service.connection.respond(subjects.ingest("*"), door.ingest)
        await service.connection.respond(subjects.put("*"), door.put)
        async with asyncio.TaskGroup() as group:
            group.create_task(committer.run())
            await patiently(finish)
            ready.set()
            # What is there by now stays: no collection is to look through it again.
            gc.freeze()
            group.create_task(relay.run())
            group.create_task(sequencer.run())
            group.create_task(reconciler.run())
            for follower in followers:
                group.create_task(follower.run())
            group.create_task(Advisories(service.connection, rules, committer).run())
            group.create_task(lease.watch())
            group.create_task(tiers.run())
            group.create_task(reembedding.run())
            group.create_task(ingest.tidy())

    service.also(answer, lambda: None if ready.is_set() else "lease")
    service.also(room.watch, lambda: "disk" if room.low else None)
    try:
        await service.run()
    finally:
        await queries.sampler.close()
        await held.close()
        await tiers.close()
        for gateway in gateways:
            await gateway.close()
        if valkey is not None:
            await valkey.close()
        await database.close()
        await record.close()
        await lease.release()


def run() -> None:
    """The process."""
    bus.run(serve(MemorySettings()))


if __name__ == "__main__":
    run()
