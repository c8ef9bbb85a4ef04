"""Memory's door on a real PostgreSQL, without a bus: bytes go in as a caller's, what would be sent is kept here."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
from memory_service.record_bodies import completed

from counterpoint.guard.capabilities import Keyring, SigningKey, mint
from counterpoint.guard.policy import policy
from counterpoint.local.postgres import PostgresUrls, run_postgres
from counterpoint.memory.access import diode
from counterpoint.memory.access.principals import ADMINISTRATOR, Principals
from counterpoint.memory.access.tokens import Tokens
from counterpoint.memory.audit.export import CheckpointCopy
from counterpoint.memory.audit.note import NoteKey
from counterpoint.memory.audit.sequencer import Sequencer
from counterpoint.memory.cache.valkey import Valkey
from counterpoint.memory.commit.committer import Committer, LoggedMessage
from counterpoint.memory.commit.inbound import InboundMessages
from counterpoint.memory.commit.metrics import observe
from counterpoint.memory.embedding.files import ModelSettings
from counterpoint.memory.embedding.model import Embedder, EmbeddingModel
from counterpoint.memory.ingest.entities import KnowledgeGraph
from counterpoint.memory.maintenance.seeds import plant
from counterpoint.memory.projection.graph import Graph
from counterpoint.memory.projection.projections import Tiers
from counterpoint.memory.projection.qdrant_embedded import EdgeEpisodic
from counterpoint.memory.provenance.read_sets import OriginCache
from counterpoint.memory.query.epochs import Epochs
from counterpoint.memory.record.database import Database, Lease
from counterpoint.memory.record.functions import SEARCH_PATH
from counterpoint.memory.record.migrate import migrate
from counterpoint.memory.record.plan import CommitPlan, PlannedMessage
from counterpoint.memory.search.corpus_cache import CorpusCache
from counterpoint.memory.search.model_registry import ModelName, ModelRegistry
from counterpoint.memory.search.scan import index_of
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.memory.wiring import Components, CoreComponents, SearchComponents, SigningKeys
from counterpoint.proto import subjects
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import (
    AuditQuery,
    Commit,
    CommitReply,
    CommitRequest,
    ConsumerHealth,
    Get,
    MemoryQuery,
    Origin,
    Outgoing,
    QueryReply,
    QueryRequest,
    QueryResult,
    Refusal,
    Verify,
    Write,
)

CHANGED = "counterpoint.records.changed.v1"
ROUTED, DELEGATED, WORKED = (f"counterpoint.task.{name}.v1" for name in ("routed", "delegated", "worked"))
REPORTED = "counterpoint.task.outcome_reported.v1"
AUDIT_KEY = NoteKey("5e" * 32)
DECISION, DUE = "counterpoint.decision.made.v1", "counterpoint.task.due.v1"


def task_body(task: str, state: str = "working", **fields: Any) -> dict[str, Any]:
    """Return the body of a record in `tasks`."""
    return {"task_id": task, "kind": "question", "state": state, **fields}


async def no_consumers() -> tuple[ConsumerHealth, ...]:
    """The consumers of a house without a bus."""
    return ()


class House:
    """A memory process without its bus. `sent` holds every message of an applied commit by id, `announced` what is
    only live."""

    def __init__(self, urls: PostgresUrls, folder: Path | None = None, copies: Sequence[CheckpointCopy] = ()) -> None:
        self.urls = urls
        self._temporary = None if folder else tempfile.TemporaryDirectory()
        self.folder = folder or Path(self._temporary.name if self._temporary else "")
        self.keys = (SigningKey.generate(1),)
        self.keyring = Keyring(self.keys)
        self.database = Database(urls.memory, pool_size=8, connect_timeout_s=5)
        self.sent: dict[str, LoggedMessage] = {}
        self.announced: list[PlannedMessage] = []
        self.copies = copies
        self._lease = Lease(urls.memory, "a test")
        self.held = CorpusCache(self.database.reading)
        self.search = SearchEngine(None, None, corpus_cache=self.held)
        self.tokens = Tokens(policy(), self.keyring)
        self.make: Callable[[ModelName], EmbeddingModel] = lambda named: Embedder(
            ModelSettings().model_cache_dir, model=named.name
        )
        self.far: Valkey | None = None
        self.tiers = self._tiers()
        self.committer = Committer(
            self.database,
            lambda: self._lease.epoch,
            lambda row, project: None,
            self._keep,
            on_begin=self._begin,
            queue_limit=2000,
        )
        self.restart()

    def _begin(self, steps: Sequence[CommitPlan]) -> None:
        self.causes.begin(steps)
        self.epochs.begin(steps)

    async def open(self) -> None:
        """Take the lease, apply commits, and plant the administrator."""
        await self._lease.acquire(0.1)
        await self.database.open()
        self._run()
        self._follow()
        first = Principals.administrator("the administrator's token")
        await plant(self.database, policy(), self.committer, subjects.DEFAULT_PROJECT, (first,))

    async def close(self) -> None:
        """Stop."""
        await self._stop()
        await self.unfollow()
        await self.held.close()
        await self.database.close()
        await self._lease.release()
        if self._temporary is not None:
            self._temporary.cleanup()

    def restart(self) -> None:
        """All that memory holds in RAM alone is gone."""
        self._origins = OriginCache(1000)
        self.causes = InboundMessages(self.database, policy(), self._origins, lambda: self._lease.epoch)
        self.epochs = Epochs(self.database, policy(), lambda: self._lease.epoch)
        self.sequencer = Sequencer(self.database, AUDIT_KEY, self.copies)
        self.models = ModelRegistry(
            self.database, self.search, lambda named: self.make(named), lambda: self._lease.epoch
        )
        parts = Components(
            policy(),
            SigningKeys(self.keys, self.keyring, self.tokens),
            CoreComponents(
                self.database, self.committer, self.causes, self.epochs, self.sequencer, self.copies, no_consumers
            ),
            SearchComponents(self.search, self.models, self.tiers, self.far),
            read_set_items=1000,
        )
        self.reembedding, self.takebacks, self.erasures = parts.reembedding, parts.takebacks, parts.erasures
        self.ingest, self.queries, self.answers = parts.ingest, parts.queries, parts.answers
        self.authority, self.commits, self.door = parts.authority, parts.commits, parts.server
        self.knowledge = KnowledgeGraph(self.database, policy(), self.committer, parts.vectors, self.erasures.lock)

    async def remember(self) -> None:
        """Remember earlier take-backs, as a process does before it answers."""
        await self.takebacks.remember(datetime.now(UTC) - timedelta(days=7))

    async def finish(self) -> None:
        """Finish interrupted take-backs, as a process does as soon as it applies commits."""
        await self.takebacks.finish(datetime.now(UTC) - timedelta(days=7))

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Commits wait inside the block, and are then applied as one batch."""
        await self._stop()
        self.committer.open()
        try:
            yield
        finally:
            self._run()

    async def together(self, *commits: Any, queued: int | None = None) -> list[CommitReply]:
        """The replies to commits applied as one batch, in which `queued` of them have a place of their own."""
        async with self.holding():
            asked = [asyncio.ensure_future(commit) for commit in commits]
            async with asyncio.timeout(60):
                while self.committer.waiting < (queued or len(asked)):  # noqa: ASYNC110 - the queue has no event to wait for
                    await asyncio.sleep(0)
        return list(await asyncio.gather(*asked))

    @asynccontextmanager
    async def superuser(self) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
        """A connection that no rule binds."""
        url = self.urls.admin.removesuffix("/postgres") + "/" + self.urls.owner.rpartition("/")[2]
        connection = await asyncpg.connect(url, server_settings={"search_path": SEARCH_PATH})
        try:
            yield connection
        finally:
            await connection.close()

    def standing(self, project: str, task: str | None = None, **changes: Any) -> Origin:
        """Work that came by an intake or for a principal: it has no token."""
        return Origin(**{"message_id": new_id(), "fence": 1, "project": project, "task_id": task, **changes})

    def delivery(self, message_id: str, /, *, lives_s: float = 60, **changes: Any) -> Origin:
        """Work on a message that was sent, with the token that it is published with."""
        return self.delivery_as(message_id, self.sent[message_id], lives_s=lives_s, **changes)

    def delivery_as(self, message_id: str, message: LoggedMessage, /, *, lives_s: float = 60, **changes: Any) -> Origin:
        """Work on this message as if it had been sent under this id."""
        row = message.row
        ends = datetime.now(UTC) + timedelta(seconds=lives_s)
        grant = diode.capability(policy(), row.type, row.audience[0], message.project, row.task_id, message_id, ends)
        values: dict[str, Any] = {
            "message_id": message_id,
            "fence": 1,
            "project": message.project,
            "task_id": row.task_id,
            "capability": mint(self.keyring, grant),
        }
        return Origin(**{**values, **changes})

    async def query(self, caller: str, origin: Origin, *queries: MemoryQuery) -> QueryReply:
        """Return the reply of memory to queries."""
        request = QueryRequest(origin=origin, queries=queries)
        return QueryReply.model_validate_json(await self.door.query(caller, request.model_dump_json().encode()))

    async def answer(self, caller: str, origin: Origin, query: MemoryQuery) -> QueryResult:
        """The answer to a query that is allowed."""
        reply = await self.query(caller, origin, query)
        assert reply.refusal is None, reply.refusal
        return reply.found[0]

    async def commit(
        self, caller: str, origin: Origin, *, reads: int = 0, whole: bool = True, **commit: Any
    ) -> CommitReply:
        """Return the reply of memory to a commit. With `whole`, missing fields of the bodies are filled in before."""
        asked = Commit(**commit)
        if whole:
            writes = tuple(completed(write, origin.project, origin.task_id, caller) for write in asked.writes)
            asked = asked.model_copy(update={"writes": writes})
        request = CommitRequest(origin=origin, reads=reads, commit=asked)
        return CommitReply.model_validate_json(await self.door.commit(caller, request.model_dump_json().encode()))

    async def apply(self, caller: str, origin: Origin, *, reads: int = 0, **commit: Any) -> CommitReply:
        """The reply to a commit that is applied."""
        reply = await self.commit(caller, origin, reads=reads, **commit)
        assert reply.status == "done", reply.refusal
        return reply

    async def refusal(
        self, caller: str, origin: Origin, code: str, *queries: MemoryQuery, reads: int = 0, **commit: Any
    ) -> Refusal:
        """The refusal of queries, or of a commit: for `code`, and with one leaf in the audit log that says so."""
        before = await self._leaves(origin, caller, code)
        reply: QueryReply | CommitReply
        if queries:
            reply = await self.query(caller, origin, *queries)
            assert not reply.found
        else:
            reply = await self.commit(caller, origin, reads=reads, **commit)
            assert reply.status == "refused", reply
        assert reply.refusal is not None
        assert reply.refusal.code == code, reply.refusal
        assert reply.refusal.kind in ("denied", "permanent")
        assert await self._leaves(origin, caller, code) == before + 1
        return reply.refusal

    async def verify(self, project: str, **asked: Any) -> dict[str, Any]:
        """The report on the audit log, as a project sees it."""
        return await self.report(project, Verify(**asked))

    async def report(self, project: str, query: AuditQuery) -> dict[str, Any]:
        """Return the report that answers a query of the audit log."""
        found = await self.answer("router", self.standing(project), query)
        assert found.report is not None
        return found.report

    async def index(self, project: str) -> None:
        """Give a project an index of its vectors, as if it had grown."""
        async with self.superuser() as connection:
            await connection.execute(
                f"CREATE INDEX {index_of(project, self.search.model_id)} ON meanings"
                f" USING hnsw ((embedding::vector({self.search.active.dimensions})) vector_cosine_ops)"
                f" WHERE project = '{project}' AND model = '{self.search.model_id}'"
            )

    async def routed(self, project: str, task: str) -> str:
        """A task that the router handed to the manager: the message's id."""
        message = Outgoing(type=ROUTED, data={"task_id": task})
        return (await self.apply("router", self.standing(project, task), messages=(message,))).message_ids[0]

    async def reported(self, project: str, task: str) -> str:
        """An outcome that somebody reported of a task: the id of the manager's message, which carries no version."""
        message = Outgoing(type=REPORTED, data={"task_id": task})
        return (await self.apply("router", self.standing(project, task), messages=(message,))).message_ids[0]

    async def delegated(self, project: str, task: str) -> str:
        """A task that the manager has a record of and handed to the developer: the message's id."""
        routed = await self.routed(project, task)
        write = Write(store="tasks", id=task, body=task_body(task))
        message = Outgoing(type=DELEGATED, data={"task_id": task})
        done = await self.apply("manager", self.delivery(routed), writes=(write,), messages=(message,))
        return done.message_ids[0]

    async def body(self, project: str, store: str, record_id: str) -> dict[str, Any] | None:
        """A record's body, None when there is none."""
        items = (await self.answer("router", self.standing(project), Get(store=store, id=record_id))).items
        return items[0].body if items else None

    async def _leaves(self, origin: Origin, caller: str, rule: str) -> int:
        async with self.superuser() as connection:
            count: int = await connection.fetchval(
                "SELECT count(*) FROM audit WHERE kind = 'refusal' AND project = $1 AND body::jsonb @> $2::text::jsonb",
                origin.project,
                f'{{"service": "{caller}", "rule": "{rule}", "message": "{origin.message_id}"}}',
            )
        return count

    def _keep(self, steps: Sequence[CommitPlan], messages: Sequence[LoggedMessage]) -> None:
        for message in messages:
            self.causes.sent_version(message.row.id, message.task_version)
            self._origins.remember(message.row.id, message.provenance)
            self.sent[message.row.id] = message
        self.causes.applied(steps)
        self.announced += [step.announcement for step in steps if step.announcement is not None]
        self.epochs.applied(steps)
        self.search.applied(steps)
        self.tiers.applied(steps)
        self.reembedding.applied(steps)
        for step in steps:
            observe(step)

    async def refollow(self) -> None:
        """The tiers are opened as another process would; whatever the block before did to their folder."""
        await self.unfollow()
        self.tiers = self._tiers()
        self.restart()
        self._follow()

    async def unfollow(self) -> None:
        """The tiers are closed, and nothing follows the record."""
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self.tiers.close()

    def _follow(self) -> None:
        self._following = asyncio.create_task(self.tiers.run())

    def _tiers(self) -> Tiers:
        def episodic(model: EmbeddingModel) -> EdgeEpisodic:
            return EdgeEpisodic(self.folder / "episodic", model.model_id, model.dimensions)

        return Tiers(episodic, Graph(self.folder / "graph", 2), self.database, policy(), self.search)

    def _run(self) -> None:
        self._applying = asyncio.create_task(self.committer.run())

    async def _stop(self) -> None:
        self._applying.cancel()
        await asyncio.gather(self._applying, return_exceptions=True)


PERSON = ADMINISTRATOR


def decision(agent: str = "developer", **fields: Any) -> Outgoing:
    """A decision of an agent."""
    body = {
        "decision_id": new_id(),
        "project": "orders",
        "agent": agent,
        "decision_type": "test",
        "decision": "go on",
        "reasoning": "nothing speaks against it",
        "made_at": "2026-11-20T12:00:00Z",
    }
    return Outgoing(type=DECISION, data={**body, **fields})


@asynccontextmanager
async def running_house(folder: Path) -> AsyncIterator[House]:
    """Run a PostgreSQL in a folder, with the schema, and a memory service on it."""
    async with run_postgres(folder) as postgres:
        await migrate(postgres.urls.owner)
        house = House(postgres.urls)
        await house.open()
        yield house
        await house.close()
