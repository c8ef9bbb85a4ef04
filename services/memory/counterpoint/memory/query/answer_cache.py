"""Answer cache: answers as they are sent, with their items for the read set of each further delivery.

The key of an answer contains everything that it depends on: the query, the project, the visible task, the clearance,
the newest commit of each store that was read, and the embedding model. So an entry is never wrong, only useless: after
a commit the key is another one. An answer is cached only if no commit was under way, and the model did not change,
while it was read.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.cache.cache import Cache
from counterpoint.memory.cache.valkey import Valkey
from counterpoint.memory.provenance.read_sets import Outline, ReadAnswer, ReadItem
from counterpoint.memory.query.epochs import Epoch, Epochs
from counterpoint.memory.query.item_view import outline_of, read_item
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.memory import (
    Get,
    HybridSearch,
    List,
    MemoryQuery,
    QueryPlan,
    QueryResult,
    VectorSearch,
    query_digest,
)
from counterpoint.proto.upcast import current_version

_FORMAT = 3
"""Version of the format. It changes when the same key would stand for another answer."""
_HEAD_BYTES = 4
_READ = TypeAdapter(tuple[Outline, tuple[ReadItem, ...]])
_ITEM_BYTES = 500
"""Size of an item of a read set in RAM, in bytes, about."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A `QueryResult` as JSON without its end, because its time and whether it was cached come last."""

    body: bytes
    outline: Outline
    items_read: tuple[ReadItem, ...]

    def to(self, query: MemoryQuery) -> ReadAnswer:
        """Return the answer to a query as a read set has it."""
        return ReadAnswer(query_digest(query), self.outline, self.items_read)

    def json(self, took_us: int, cache: str) -> bytes:
        """Return the complete JSON."""
        return b'%b,"took_us":%d,"cache":"%b"}' % (self.body, took_us, cache.encode())


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """Result of a lookup: the keys, and the answers if all were cached. Without an `epoch` nothing is stored."""

    keys: tuple[bytes, ...] = ()
    epoch: Epoch | None = None
    changes: int = 0
    answers: tuple[CachedAnswer, ...] = ()


class AnswerCache:
    """The cache of answers. Searches are cached in both levels, in the second one if their stores rest; a record or a
    list is read as fast as from L2."""

    def __init__(self, policy: Policy, epochs: Epochs, valkey: Valkey | None, search: SearchEngine) -> None:
        self._policy = policy
        self._epochs = epochs
        self._search = search
        self._searches: Cache[CachedAnswer] = Cache(valkey, _encode, _decode, _weigh)
        self._records: Cache[CachedAnswer] = Cache(None, _encode, _decode, _weigh)

    async def lookup(self, grant: Grant, queries: Sequence[MemoryQuery]) -> CacheLookup:
        """Return the answers to a request if all are cached. They are of one moment, as fresh ones would be."""
        cacheable = [query for query in queries if isinstance(query, Get | List | VectorSearch | HybridSearch)]
        if len(cacheable) < len(queries) or not all(self._is_cacheable(query) for query in cacheable):
            return CacheLookup()
        epoch = await self._epochs.of(grant.project, [query.store for query in cacheable])
        if epoch is None:
            return CacheLookup()
        changes = self._search.changes
        keys = tuple(self._key(grant, epoch, query) for query in cacheable)
        answers = []
        for query, key in zip(cacheable, keys, strict=True):
            answer = await self._cache(query).get(key, far=epoch.rested)
            if answer is None:
                return CacheLookup(keys, epoch, changes)
            answers.append(answer)
        return CacheLookup(keys, epoch, changes, tuple(answers))

    def keep(
        self, lookup: CacheLookup, queries: Sequence[MemoryQuery], results: Sequence[QueryResult]
    ) -> tuple[CachedAnswer, ...]:
        """Return fresh answers as JSON, and cache those that were read at the epoch of the lookup."""
        answers = tuple(answer_of(each) for each in results)
        if lookup.epoch is None or not self._epochs.is_current(lookup.epoch):
            return answers
        if lookup.changes == self._search.changes:
            for key, query, each, answer in zip(lookup.keys, queries, results, answers, strict=True):
                if each.plan != QueryPlan.WITHOUT_TIER:
                    self._cache(query).put(key, answer, far=lookup.epoch.rested)
        return answers

    def _is_cacheable(self, query: Get | List | VectorSearch | HybridSearch) -> bool:
        row = self._policy.stores.get(query.store)
        return query.as_of is None and row is not None and not row.system

    def _cache(self, query: MemoryQuery) -> Cache[CachedAnswer]:
        return self._searches if isinstance(query, VectorSearch | HybridSearch) else self._records

    def _key(self, grant: Grant, epoch: Epoch, query: Get | List | VectorSearch | HybridSearch) -> bytes:
        row = self._policy.stores[query.store]
        ordered_by = self._search.reranker.model_id if self._search.reranker else None
        parts = (
            _FORMAT, self._search.model_id, ordered_by, row.tier, current_version(query.store), epoch.database_id,
            epoch.keys, epoch.commits, grant.project, grant.clearance,
            grant.task if grant.audience in row.own_task else "*",
        )  # fmt: skip
        digest = hashlib.sha256(f"{parts!r}".encode())
        digest.update(query.model_dump_json().encode())
        return b"answer:" + digest.digest()


def answer_of(result: QueryResult) -> CachedAnswer:
    """Return a result as it is cached."""
    body = result.model_dump_json(exclude={"took_us", "cache"}, exclude_none=True).encode()[:-1]
    return CachedAnswer(body, outline_of(result), tuple(read_item(item) for item in result.items))


def _weigh(answer: CachedAnswer) -> int:
    return len(answer.body) + sum(_ITEM_BYTES * (1 + len(each.cites)) for each in answer.items_read)


def _encode(answer: CachedAnswer) -> bytes:
    items = _READ.dump_json((answer.outline, answer.items_read))
    return len(items).to_bytes(_HEAD_BYTES, "big") + items + answer.body


def _decode(raw: bytes) -> CachedAnswer:
    end = _HEAD_BYTES + int.from_bytes(raw[:_HEAD_BYTES], "big")
    return CachedAnswer(raw[end:], *_READ.validate_json(raw[_HEAD_BYTES:end]))
