"""Wiring: the construction of memory's parts, the same for the process and for tests."""

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.guard.capabilities import Keyring, SigningKey
from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.guard.policy import Policy
from counterpoint.memory.access.principals import Principals
from counterpoint.memory.access.releases import Releases
from counterpoint.memory.access.revocations import Revocations
from counterpoint.memory.access.tokens import Tokens
from counterpoint.memory.audit.auditor import Auditor
from counterpoint.memory.audit.export import CheckpointCopy
from counterpoint.memory.audit.sequencer import Sequencer
from counterpoint.memory.cache.valkey import Valkey
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.dead_letters import DeadLetters
from counterpoint.memory.commit.inbound import InboundMessages
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.ingest.blobs import Blobs
from counterpoint.memory.ingest.bulk_import import BulkImport
from counterpoint.memory.ingest.documents import Ingest
from counterpoint.memory.operations.erasure import Erasures
from counterpoint.memory.operations.large_acts import LargeActs
from counterpoint.memory.operations.reembedding import Reembedding
from counterpoint.memory.operations.take_back import TakeBacks
from counterpoint.memory.projection.projections import Tiers
from counterpoint.memory.provenance.influence import Influence
from counterpoint.memory.provenance.read_sets import ReadSets
from counterpoint.memory.query.answer_cache import AnswerCache
from counterpoint.memory.query.as_of import AsOfReader
from counterpoint.memory.query.epochs import Epochs
from counterpoint.memory.query.executor import QueryExecutor
from counterpoint.memory.record.database import Database
from counterpoint.memory.rpc.authority import Authority
from counterpoint.memory.rpc.commands import CommandHandler
from counterpoint.memory.rpc.commits import CommitHandler
from counterpoint.memory.rpc.gateway_tokens import GatewayTokens
from counterpoint.memory.rpc.health import HealthReporter, ReadConsumers
from counterpoint.memory.rpc.ingests import IngestHandler
from counterpoint.memory.rpc.queries import QueryHandler
from counterpoint.memory.rpc.refusals import Refusals
from counterpoint.memory.rpc.server import RequestServer
from counterpoint.memory.search.model_registry import ModelRegistry
from counterpoint.memory.search.vectors import SearchEngine


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """Signing keys, newest first, and the keyring and tokens made of them."""

    signing: tuple[SigningKey, ...]
    ring: Keyring
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class CoreComponents:
    """Core components: the record, the committer, and the followers of commits."""

    database: Database
    committer: Committer
    causes: InboundMessages
    epochs: Epochs
    sequencer: Sequencer
    copies: Sequence[CheckpointCopy]
    consumers: ReadConsumers


@dataclass(frozen=True, slots=True)
class SearchComponents:
    """Search components: the vector tier and its models, the projections, and the second level of the cache."""

    search: SearchEngine
    models: ModelRegistry
    tiers: Tiers
    valkey: Valkey | None


class Components:
    """Components that execute requests.

    `read_set_items`: the maximum number of items in the read sets of open deliveries. `recall_share`: the share of
    searches whose recall is sampled.
    """

    def __init__(
        self,
        policy: Policy,
        keys: SigningKeys,
        core: CoreComponents,
        searching: SearchComponents,
        *,
        read_set_items: int,
        recall_share: float = 0.01,
    ) -> None:
        database, committer, search = core.database, core.committer, searching.search
        self.vectors = EmbeddingPipeline(database, policy, search)
        self.influence = Influence(database)
        self.reembedding = Reembedding(database, searching.models, search, self.vectors, committer, searching.tiers)
        large = LargeActs(database, policy, committer)
        self.takebacks = TakeBacks(database, policy, committer, self.vectors, self.influence, large)
        self.erasures = Erasures(database, policy, committer, self.influence, core.sequencer.once, large)
        releases = Releases(database, Fingerprints(keys.signing))
        blobs = Blobs(database, policy, releases)
        self.ingest = Ingest(database, policy, self.vectors, committer, blobs, releases)
        self.queries = QueryExecutor(
            database,
            policy,
            search,
            AsOfReader(policy, self.vectors),
            self.influence,
            searching.tiers,
            Auditor(database, core.sequencer, core.copies),
            sample_share=recall_share,
        )
        self.answers = AnswerCache(policy, core.epochs, searching.valkey, search)
        self.health = HealthReporter(core.consumers, self.queries.sampler, search, valkey=searching.valkey is not None)
        self.authority = Authority(
            policy, keys.ring, Principals(database), Revocations(database), core.causes, ReadSets(read_set_items)
        )

        self.commits, self.server = self._handlers(policy, keys, core, searching, releases, blobs)

    def _handlers(
        self,
        policy: Policy,
        keys: SigningKeys,
        core: CoreComponents,
        searching: SearchComponents,
        releases: Releases,
        blobs: Blobs,
    ) -> tuple[CommitHandler, RequestServer]:
        database, committer, authority = core.database, core.committer, self.authority

        async def alive() -> None:
            committer.disk.check()
            await database.answers()

        dead_letters = DeadLetters(database, policy)
        commits = CommitHandler(policy, authority, self.vectors, committer, dead_letters, self.takebacks, releases)
        commands = CommandHandler(
            policy,
            authority,
            commits,
            dead_letters,
            self.takebacks,
            self.erasures,
            (searching.tiers, self.reembedding),
            GatewayTokens(authority, keys.tokens, database),
        )
        bulk = BulkImport(database, policy, self.vectors, committer, releases)
        return commits, RequestServer(
            QueryHandler(policy, authority, self.queries, self.answers, releases, self.reembedding, self.health, alive),
            commits,
            commands,
            IngestHandler(authority, self.ingest, bulk, blobs, committer.disk),
            Refusals(committer),
        )
