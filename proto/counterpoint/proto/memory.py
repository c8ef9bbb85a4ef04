"""What services say to memory: queries and commits; and what memory announces."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from counterpoint.proto.errors import Problem
from counterpoint.proto.messages import Id, Message, ProjectName, Shape, Time
from counterpoint.proto.upcast import current_version


class Origin(Shape):
    """On whose behalf a service asks: the inbound message it works on, the fence of its delivery, and the run of the
    handler over that delivery (a handler that starts anew has read nothing yet).

    `capability` is the token that came with a work message. Work without a task carries none and names the
    `principal` that asked instead; memory then applies the service's own grant, narrowed to `project`.
    """

    message_id: str
    fence: int = 0
    run: int = 0
    project: ProjectName
    task_id: str | None = None
    capability: str | None = None
    principal: str | None = None
    traceparent: str | None = None


AsOf = Annotated[str, Field(min_length=1, max_length=64)]
"""A past moment: the id of a commit of the project, right after which it was, or a time."""


class Get(Shape):
    """One record by id; the reply holds no item when there is none."""

    op: Literal["get"] = "get"
    store: str
    id: str
    as_of: AsOf | None = None


class List(Shape):
    """Records of one store, newest first unless `ascending`. `where` matches fields of the body for equality."""

    op: Literal["list"] = "list"
    store: str
    where: dict[str, Any] = {}
    task_id: str | None = None
    ascending: bool = False
    limit: int = Field(default=50, ge=1, le=1000)
    cursor: int | None = Field(default=None, ge=0, lt=2**63)
    as_of: AsOf | None = None


class Filter(Shape):
    """Which records a search is in.

    `where` matches fields of the body for equality; of chunks `metadata` is that of their document. `under` is how the
    source of a chunk begins: a folder, or an address. `since` and `until` bound when a record was written.
    """

    where: dict[str, Any] = {}
    under: str | None = Field(default=None, min_length=1, max_length=2_000)
    since: Time | None = None
    until: Time | None = None

    @property
    def filters(self) -> bool:
        """Whether it leaves anything out."""
        return bool(self.where or self.under or self.since or self.until)


class VectorSearch(Filter):
    """The `k` records of a store nearest in meaning to `text`."""

    op: Literal["vector_search"] = "vector_search"
    store: str
    text: str = Field(max_length=100_000)
    k: int = Field(default=10, ge=1, le=200)
    as_of: AsOf | None = None


class HybridSearch(Filter):
    """The `k` best records by words and by meaning (row C2).

    `vector_weight` 1 is meaning alone, 0 words alone; without one each type of text has its own. `also` are other
    wordings or parts of the question: a record counts by that which it fits best, and has `scores` for `text` where it
    was found by that. `neighbours` adds so many before and after each chunk found, or each of the best
    `neighbours_of` of them, without a score.
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
        """All that is looked for."""
        return tuple(dict.fromkeys((self.text, *self.also)))


class Line(Shape):
    """The actions of one task in the order of the record."""

    op: Literal["line"] = "line"
    task_id: str
    newest_first: bool = False
    limit: int = Field(default=1000, ge=1, le=10_000)
    as_of: AsOf | None = None


class LogAfter(Shape):
    """Messages of the project's log after a sequence number, for streams that resume."""

    op: Literal["log_after"] = "log_after"
    after: int = Field(ge=0, lt=2**63)
    kinds: tuple[Literal["tasks", "decisions", "changes", "dead"], ...] = ("tasks", "decisions")
    task_id: str | None = None
    limit: int = Field(default=200, ge=1, le=1000)


class Walk(Shape):
    """Edges reached from `start` (values of the edges' `source`, or `target` when walking up, or of either), at most
    `depth` hops."""

    op: Literal["walk"] = "walk"
    store: str
    start: tuple[str, ...]
    direction: Literal["down", "up", "both"] = "down"
    depth: int = Field(default=10, ge=1, le=100)
    limit: int = Field(default=1000, ge=1, le=10_000)


class Verify(Shape):
    """Check the audit log, of a project or one task: hashes, chains, tree, and that records are as they were committed.

    `checkpoints` are signed notes that the asker has kept; the tree is compared with them too.
    """

    op: Literal["verify"] = "verify"
    task_id: str | None = None
    checkpoints: str = ""


class RestsOn(Shape):
    """All that rests on a record, from `version` on (row M1), and with `shown` also what it was only shown to: its
    `report` is a `MemoryRadius`."""

    op: Literal["rests_on"] = "rests_on"
    store: str
    id: str
    version: int = Field(default=1, ge=1)
    limit: int = Field(default=5000, ge=1, le=100_000)
    shown: bool = False


class Cypher(Shape):
    """The first `limit` rows of a Cypher query over the line of all tasks of the project. It can only read (row D4)."""

    op: Literal["cypher"] = "cypher"
    query: str = Field(min_length=1, max_length=16_000)
    parameters: dict[str, Any] = {}
    limit: int = Field(default=100, ge=1, le=10_000)
    timeout_ms: int = Field(default=1000, ge=1, le=2500)


class Rebuild(Shape):
    """How far the rebuild of a projection of the project has come; with `start` it begins."""

    op: Literal["rebuild"] = "rebuild"
    tier: Literal["episodic", "graph"]
    start: bool = False


class Reembed(Shape):
    """Which models of embeddings are in use and how far the other one's vectors have come, after `act` was done.

    `begin` makes vectors of `model` beside those that are searched, `switch` searches by them when they are complete,
    `rollback` goes back to the model before, `drop` forgets the vectors of the one that is not searched by. Large
    projects have an index of the other model before it is searched by, unless they may be `unindexed`.
    """

    op: Literal["reembed"] = "reembed"
    act: Literal["status", "begin", "switch", "rollback", "drop"] = "status"
    model: str | None = Field(default=None, min_length=1, max_length=210)
    unindexed: bool = False


class Prove(Shape):
    """Proofs that the leaves of a task, or one of them by its id, are in the tree of the newest checkpoint."""

    op: Literal["prove"] = "prove"
    task_id: str | None = None
    id: str | None = None
    after: int = Field(default=0, ge=0, lt=2**63)
    limit: int = Field(default=100, ge=1, le=200)


class Checkpoints(Shape):
    """Signed checkpoints of the audit log, newest first; those of trees smaller than `before`."""

    op: Literal["checkpoints"] = "checkpoints"
    before: int | None = Field(default=None, ge=0, lt=2**63)
    limit: int = Field(default=50, ge=1, le=200)


class Leaves(Shape):
    """The leaves of the whole audit log after a position; those of other projects are hashes."""

    op: Literal["leaves"] = "leaves"
    after: int = Field(default=0, ge=0, lt=2**63)
    limit: int = Field(default=1000, ge=1, le=4000)


class Explain(Shape):
    """Refusals of a project in plain words, newest first; or one of them by its id."""

    op: Literal["explain"] = "explain"
    id: str | None = None
    before: int | None = Field(default=None, ge=0, lt=2**63)
    limit: int = Field(default=20, ge=1, le=200)


AuditQuery = Verify | Prove | Checkpoints | Leaves | Explain
"""What is asked of the audit log; each has its answer in the report."""
MemoryQuery = Annotated[
    Get
    | List
    | VectorSearch
    | HybridSearch
    | Walk
    | Line
    | LogAfter
    | RestsOn
    | Cypher
    | Rebuild
    | Reembed
    | AuditQuery,
    Field(discriminator="op"),
]


class Item(Shape):
    """A record as it was read. `seq` orders it within its project; `score` and `scores` come with searches."""

    store: str
    id: str
    project: ProjectName
    version: int
    body: dict[str, Any]
    author: str
    label: int
    integrity: int
    seq: int
    at: Time
    score: float | None = None
    scores: dict[str, float] | None = None


class Ref(Shape):
    """A record at a version."""

    store: str
    id: str
    version: int


class Found(Shape):
    """The answer to one query: the items, and which tier answered and how. `partial`: there is more than the
    bus carries, or than was looked at.

    `erased`: what stood there at the moment that was asked about, and was erased since.
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


class Refusal(Shape):
    """Why memory did not do what was asked, in the terms of `counterpoint.proto.errors`.

    `id` is that of its leaf in the audit log, by which it can be explained; what is only put off has none.
    """

    kind: Literal["transient", "permanent", "denied", "conflict"]
    code: str
    detail: str = ""
    needed: str = ""
    problems: tuple[Problem, ...] = ()
    id: str | None = None


TokenPurpose = Literal["model", "web"]
"""What a gateway token is for: calls of models, or searches of the web."""


class GatewayToken(Shape):
    """A gateway token for the task of the inbound message, good for `life_s`.

    `reads` is how many query requests this delivery has had answered: memory wants to know them all, for no token is
    made where something read is above the clearance of the providers. One for the web makes the delivery untrusted, and
    counts as such a request itself.
    """

    purpose: TokenPurpose
    reads: int = Field(default=0, ge=0)
    life_s: float = Field(default=300.0, gt=0, le=300)


class QueryRequest(Shape):
    """Some queries in one request; they are answered in order from one snapshot. Or a gateway token is asked for, or
    what may be kept of `names`: of each without what is secret in it."""

    origin: Origin
    queries: tuple[MemoryQuery, ...] = ()
    gateway: GatewayToken | None = None
    names: tuple[str, ...] = ()


class QueryReply(Shape):
    """One `Found` per query, or the token that was asked for, or one name per name, or the refusal of all of it."""

    found: tuple[Found, ...] = ()
    token: str | None = None
    names: tuple[str, ...] = ()
    refusal: Refusal | None = None


class Write(Shape):
    """A new version of a record. `expect` is the version the writer saw (0: none yet); no `body` deletes it.

    `schema_version` is that of the store, as the writer knows it: an older writer than what is stored is refused.
    """

    store: str
    id: str
    body: dict[str, Any] | None = None
    expect: int = Field(default=0, ge=0)
    schema_version: int = Field(default_factory=lambda given: current_version(given.get("store", "")), ge=1)


class Outgoing(Shape):
    """A message to send; memory knows its subject from its type. With `due_at` it is a timer, cancelled by `timer`."""

    type: str
    data: dict[str, Any]
    task_id: str | None = None
    due_at: Time | None = None
    timer: str | None = None


class DeadLetter(Shape):
    """A message that cannot be handled, as it came, with the reason."""

    code: str
    problems: tuple[Problem, ...] = ()
    subject: str
    headers: dict[str, str] = {}
    body: str


class Commit(Shape):
    """The effects of one step, applied once and together.

    `reads` is how many query requests this step's delivery has had answered: memory refuses the commit as transient
    when it no longer knows them. Only the `last` step may send workflow messages or change workflow state.
    """

    step: str = "done"
    last: bool = True
    writes: tuple[Write, ...] = ()
    messages: tuple[Outgoing, ...] = ()
    cancel_timers: tuple[str, ...] = ()
    dead_letter: DeadLetter | None = None


class CommitRequest(Shape):
    """A commit on somebody's behalf."""

    origin: Origin
    reads: int = 0
    commit: Commit


class CommitReply(Shape):
    """What became of a commit.

    `replayed`: this step was applied before and this is its stored outcome. `stale`: the task has moved on, nothing
    was done and nothing need be. `versions` maps `store/id` to the version written.
    """

    status: Literal["done", "replayed", "stale", "refused"]
    versions: dict[str, int] = {}
    message_ids: tuple[str, ...] = ()
    refusal: Refusal | None = None


class RecordsChanged(Message):
    """A commit happened: who read and wrote what. Announced on `changes.<project>.<service>`.

    `ended`: its task has ended with it.
    """

    TYPE: ClassVar[str] = "counterpoint.records.changed.v1"

    commit_id: Id
    project: ProjectName
    service: str
    task_id: Id | None = None
    reads: tuple[Ref, ...] = ()
    writes: tuple[Ref, ...] = ()
    ended: bool = False
    at: Time


class MessageDied(Message):
    """A message was dead-lettered."""

    TYPE: ClassVar[str] = "counterpoint.message.died.v1"

    dead_letter_id: Id
    consumer: str
    subject: str
    code: str
    problems: tuple[Problem, ...] = ()
