"""The memory service: the one door to everything that is kept, and the only one that publishes."""

import asyncio
import os
from collections.abc import Sequence

from counterpoint.bus import Service
from counterpoint.guard.capabilities import Keyring
from counterpoint.guard.policy import policy
from counterpoint.memory.advisories import Advisories
from counterpoint.memory.blobs import Blobs
from counterpoint.memory.committer import Committer, Sent
from counterpoint.memory.database import PLANNED_ONCE, Database, Lease
from counterpoint.memory.door import Door
from counterpoint.memory.ingest import Ingest
from counterpoint.memory.letters import Letters
from counterpoint.memory.principals import Principals
from counterpoint.memory.provenance import Origins, Reads
from counterpoint.memory.providers import provider_writes
from counterpoint.memory.queries import Queries
from counterpoint.memory.reconcile import Reconciler
from counterpoint.memory.relay import Relay
from counterpoint.memory.rows import Prepared
from counterpoint.memory.search import Search
from counterpoint.memory.seeds import plant
from counterpoint.memory.settings import MemorySettings
from counterpoint.memory.telemetry import observe
from counterpoint.proto import subjects

_RECORD_POOL = 4
"""Connections of committer and relay alone: what is written never waits behind what is read."""


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
    relay = Relay(
        record,
        service.connection,
        rules,
        keyring,
        origins,
        sweep_age_s=settings.sweep_age_s,
        capability_life_s=settings.capability_life_s,
    )

    def applied(steps: Sequence[Prepared], messages: Sequence[Sent]) -> None:
        for message in messages:
            door.sent_version(message.row.id, message.task_version)
        relay.sent(messages)
        for step in steps:
            observe(step)

    committer = Committer(record, lambda: lease.epoch, relay.capability, applied, queue_limit=settings.commit_queue)
    valkey = settings.valkey_url.get_secret_value() if settings.valkey_url else None
    search = Search(settings.model_cache_dir, valkey)
    principals = Principals(database)
    blobs = Blobs(database)
    door = Door(
        rules,
        keyring,
        database,
        principals,
        Queries(database, rules, search),
        committer,
        Reads(settings.read_set_items),
        origins,
        search,
        Ingest(database, rules, search, committer, blobs),
        blobs,
        Letters(database, rules),
        settings.revoked_capabilities,
    )
    reconciler = Reconciler(
        database,
        service.connection,
        relay,
        every_s=settings.reconcile_every_s,
        retention_s=settings.retention_s,
    )
    service.connection.on_reconnect.append(reconciler.soon)
    relay.on_cut.append(reconciler.soon)
    ready = asyncio.Event()

    async def answer() -> None:
        await lease.acquire(settings.lease_retry_s)
        await database.open()
        await record.open()
        await reconciler.learn()
        await service.connection.respond(subjects.query("*"), door.query)
        await service.connection.respond(subjects.commit("*"), door.commit)
        await service.connection.respond(subjects.ingest("*"), door.ingest)
        await service.connection.respond(subjects.put("*"), door.put)
        async with asyncio.TaskGroup() as group:
            group.create_task(committer.run())
            if settings.admin_token is not None:
                first = Principals.administrator(settings.admin_token.get_secret_value())
                await plant(database, rules, committer, subjects.DEFAULT_PROJECT, (first,))
            await plant(database, rules, committer, subjects.SHARED_PROJECT, provider_writes())
            ready.set()
            group.create_task(relay.run())
            group.create_task(reconciler.run())
            group.create_task(Advisories(service.connection, rules, committer).run())
            group.create_task(lease.watch())

    service.also(answer, lambda: None if ready.is_set() else "lease")
    try:
        await service.run()
    finally:
        await database.close()
        await record.close()
        await lease.release()


def run() -> None:
    """The process."""
    asyncio.run(serve(MemorySettings()))


if __name__ == "__main__":
    run()
