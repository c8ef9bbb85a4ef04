"""Queries of the record, and the request that carries them."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from counterpoint.proto.memory.audit import AuditQuery
from counterpoint.proto.memory.health import Health
from counterpoint.proto.memory.operations import Rebuild, Reembed
from counterpoint.proto.memory.organisation import OrganisationLimits
from counterpoint.proto.memory.request import Item, Origin, Ref, Refusal
from counterpoint.proto.memory.steps import RecordedAnswer, RecordedStep
from counterpoint.proto.messages import Shape, Time, Usd

AsOf = Annotated[str, Field(min_length=1, max_length=64)]
"""A past moment: an RFC 3339 time, or the id of a commit of the project, meaning the state right after it."""


class Get(Shape):
    """One record by id; no item when it does not exist."""

    op: Literal["get"] = "get"
    store: str
    id: str
    as_of: AsOf | None = None


class List(Shape):
    """Records of one store, newest first unless `ascending`. `where` matches body fields for equality. `named_in`
    selects the records whose `name`, or one of whose `aliases` or `terms`, occurs in a text, ignoring case and
    punctuation."""

    op: Literal["list"] = "list"
    store: str
    where: dict[str, Any] = {}
    named_in: str | None = Field(default=None, max_length=100_000)
    task_id: str | None = None
    ascending: bool = False
    limit: int = Field(default=50, ge=1, le=1000)
    cursor: int | None = Field(default=None, ge=0, lt=2**63)
    as_of: AsOf | None = None


class Filter(Shape):
    """The filters of a search.

    `where` matches body fields for equality; a chunk has the `metadata` of its document. `under` is a prefix of a
    chunk's source: a folder or an address. `since` and `until` bound the time of writing.
    """

    where: dict[str, Any] = {}
    under: str | None = Field(default=None, min_length=1, max_length=2_000)
    since: Time | None = None
    until: Time | None = None

    @property
    def filters(self) -> bool:
        """Whether any filter is set."""
        return bool(self.where or self.under or self.since or self.until)


class VectorSearch(Filter):
    """The `k` records of a store whose embeddings are nearest to that of `text`."""

    op: Literal["vector_search"] = "vector_search"
    store: str
    text: str = Field(max_length=100_000)
    k: int = Field(default=10, ge=1, le=200)
    as_of: AsOf | None = None


class HybridSearch(Filter):
    """The `k` best records by lexical and vector search; see docs/retrieval.md.

    `vector_weight` 1 is vector search alone, 0 lexical search alone; by default it depends on the text. `also` are
    paraphrases or parts of the question: a record has the score of its best match, and `scores` for `text` if that
    found it. `neighbours` adds that many chunks before and after each of the best `neighbours_of` chunks, unscored.
    """

    op: Literal["hybrid_search"] = "hybrid_search"
    store: str
    text: str = Field(max_length=100_000)
    also: tuple[Annotated[str, Field(min_length=1, max_length=100_000)], ...] = Field(default=(), max_length=4)
    k: int = Field(default=10, ge=1, le=200)
    vector_weight: float | None = Field(default=None, ge=0, le=1)
    neighbours: int = Field(default=0, ge=0, le=3)
    neighbours_of: int = Field(default=200, ge=1, le=200)
    as_of: AsOf | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """All distinct query texts."""
        return tuple(dict.fromkeys((self.text, *self.also)))


class Line(Shape):
    """The actions of one task in commit order."""

    op: Literal["line"] = "line"
    task_id: str
    newest_first: bool = False
    limit: int = Field(default=1000, ge=1, le=10_000)
    as_of: AsOf | None = None


class LogAfter(Shape):
    """Messages of the project's log after a sequence number, for resumable streams."""

    op: Literal["log_after"] = "log_after"
    after: int = Field(ge=0, lt=2**63)
    kinds: tuple[Literal["tasks", "decisions", "changes", "dead"], ...] = ("tasks", "decisions")
    task_id: str | None = None
    limit: int = Field(default=200, ge=1, le=1000)


class EdgeWalk(Shape):
    """Edges reachable from `start` within `depth` hops.

    `start` are values of the edges' `source` when walking down, of `target` when walking up, of either for both.
    `as_of` leaves out the edges written later; those that were deleted since are missing.
    """

    op: Literal["walk"] = "walk"
    store: str
    start: tuple[str, ...]
    direction: Literal["down", "up", "both"] = "down"
    depth: int = Field(default=10, ge=1, le=100)
    limit: int = Field(default=1000, ge=1, le=10_000)
    as_of: AsOf | None = None


class Dependents(Shape):
    """The records that depend on a record from `version` on; the `report` is a `MemoryRadius`. See docs/memory.md.

    With `shown` also the records that were written after reading it without citing it.
    """

    op: Literal["rests_on"] = "rests_on"
    store: str
    id: str
    version: int = Field(default=1, ge=1)
    limit: int = Field(default=5000, ge=1, le=100_000)
    shown: bool = False


class Cypher(Shape):
    """The first `limit` rows of a read-only Cypher query over the lines of all tasks of the project."""

    op: Literal["cypher"] = "cypher"
    query: str = Field(min_length=1, max_length=16_000)
    parameters: dict[str, Any] = {}
    limit: int = Field(default=100, ge=1, le=10_000)
    timeout_ms: int = Field(default=1000, ge=1, le=2500)


CostGroup = Literal["agent", "day", "model", "project", "session", "task"]


class Costs(Shape):
    """Sums of the model calls of the project by `by`; the `report` is a `CostReport`.

    `since` and `until` bound the time of the call, `until` exclusively. `key` selects one group. Groups are ordered by
    cost, days by date, the greatest first.
    """

    op: Literal["costs"] = "costs"
    by: CostGroup = "model"
    key: str | None = Field(default=None, max_length=200)
    since: Time | None = None
    until: Time | None = None
    limit: int = Field(default=200, ge=1, le=1000)


MemoryQuery = Annotated[
    Get
    | List
    | VectorSearch
    | HybridSearch
    | EdgeWalk
    | Line
    | LogAfter
    | Dependents
    | Costs
    | OrganisationLimits
    | Cypher
    | Rebuild
    | Reembed
    | Health
    | RecordedStep
    | RecordedAnswer
    | AuditQuery,
    Field(discriminator="op"),
]


class QueryPlan(StrEnum):
    """The way in which memory answered a query."""

    PRIMARY_KEY = "primary key"
    LIST = "list"
    """An index of a store, page by page."""
    LOG = "log"
    """The message log, page by page."""
    TASK_INDEX = "task index"
    RECURSIVE = "recursive"
    """A walk over edges in the record."""
    AS_OF = "as of"
    AS_OF_EXACT = "as of, exact"
    EXACT = "exact"
    """A scan of all vectors in scope."""
    INDEXED = "indexed"
    """An approximate index of vectors."""
    NONE = "none"
    """No search: the query or its scope is empty."""
    NEAREST = "nearest"
    """The episodic tier."""
    WITHOUT_TIER = "exact, episodic is away"
    """The record instead of the episodic tier."""
    INFLUENCE = "influence"
    AGGREGATE = "aggregate"
    """Sums over the records of a store."""
    AUDIT = "audit"
    CYPHER = "cypher"
    REBUILD = "rebuild"
    REEMBED = "reembed"
    HEALTH = "health"


class QueryResult(Shape):
    """The result of one query: the items, the tier that answered and its plan, a `QueryPlan`.

    `partial`: more items exist than fit into a bus message, or than were examined. `erased`: items of the past moment
    that have been erased since.
    """

    items: tuple[Item, ...] = ()
    tier: str
    plan: str
    took_us: int
    cache: Literal["hit", "miss", "off"] = "off"
    next_cursor: int | None = None
    gap: bool = False
    partial: bool = False
    erased: tuple[Ref, ...] = ()
    report: dict[str, Any] | None = None


TokenPurpose = Literal["model", "web"]
"""The calls a gateway token allows: of models, or of web search."""


class GatewayToken(Shape):
    """A request for a gateway token for the task of the inbound message, valid for `life_s` seconds.

    `reads` is the number of answered query requests of this delivery: memory issues no token if an item in the read set
    is above the clearance of the providers. A token for the web lowers the delivery's integrity to untrusted, and
    counts as a query request itself.
    """

    purpose: TokenPurpose
    reads: int = Field(default=0, ge=0)
    life_s: float = Field(default=300.0, gt=0, le=300)


class QueryRequest(Shape):
    """Queries answered in order from one snapshot; or a request for a gateway token; or `names` to redact."""

    origin: Origin
    queries: tuple[MemoryQuery, ...] = ()
    gateway: GatewayToken | None = None
    names: tuple[str, ...] = ()


class QueryReply(Shape):
    """One result per query, or the gateway token, or the redacted names, or the refusal of the whole request."""

    found: tuple[QueryResult, ...] = ()
    token: str | None = None
    names: tuple[str, ...] = ()
    refusal: Refusal | None = None


class CostSum(Shape):
    """The sum of some calls.

    `unpriced` calls had no known price and are not in `usd`; `unknown` calls had no known outcome and count at their
    estimate. `under_way` calls have reserved `reserved_usd` and `reserved_tokens`, and are in no other field.
    """

    calls: int = 0
    unpriced: int = 0
    unknown: int = 0
    usd: Usd = Decimal(0)
    input_tokens: int = 0
    output_tokens: int = 0
    under_way: int = 0
    reserved_usd: Usd = Decimal(0)
    reserved_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens


class CostLine(CostSum):
    """The sum of one group. The key of calls that no task made is empty for tasks and sessions. Days are UTC."""

    key: str


class CostReport(Shape):
    """The costs of a project by group. `total` includes the groups that a `truncated` report leaves out."""

    by: CostGroup
    lines: tuple[CostLine, ...] = ()
    total: CostSum = CostSum()
    truncated: bool = False
