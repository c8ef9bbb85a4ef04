"""Corpus cache: stores in RAM, so that one that is searched often between two changes is read once."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import numpy as np
import structlog
from cachetools import LRUCache

from counterpoint.memory.record.projects import StoreKey
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.search.corpus_index import Corpus, bytes_of
from counterpoint.proto.errors import CounterpointError

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

log = structlog.get_logger()

LIMIT_BYTES = 128 << 20
"""Size limit of all corpora. The least recently searched one is evicted first."""
SEARCHES = 4
"""Searches of an unchanged store before it is loaded into RAM. Loading 6,400 rows takes .15 s, which ten later
searches save."""

_LOAD_TIMEOUT_S = 20.0
"""Timeout of loading a store, in seconds."""
_RETRY_SEARCHES = 100
"""Further searches before a failed load is retried."""
_COUNTED_STORES = 10_000
"""Maximum number of stores whose searches are counted."""

_Key = tuple[StoreKey, str]


@dataclass(frozen=True, slots=True)
class CorpusState:
    """State of a store: the transactions that last changed it, and the numbers of its rows and postings."""

    changed: str
    rows: int
    postings: int


_SQL = load_statements(__package__)


class CorpusCache:
    """Corpora by project, store and model. Their candidates are those that the database would find in the same state.

    They are loaded in the background, one at a time, because loading takes more than twice the memory. `connections`
    gives a connection on which only the rows of a project are visible.
    """

    def __init__(
        self,
        connections: "Callable[[str], AbstractAsyncContextManager[Connection]]",
        limit_bytes: int = LIMIT_BYTES,
        searches: int = SEARCHES,
    ) -> None:
        self._connections = connections
        self._limit_bytes = limit_bytes
        self._searches = searches
        self._corpora: LRUCache[_Key, Corpus] = LRUCache(limit_bytes, getsizeof=lambda corpus: corpus.bytes)
        self._searches_of: LRUCache[StoreKey, tuple[str, int]] = LRUCache(_COUNTED_STORES)
        self._loading: asyncio.Task[None] | None = None
        self._loading_store: StoreKey | None = None
        """Store that is being loaded, None if it was dropped since."""

    def clear(self) -> None:
        """Evict everything."""
        self._corpora.clear()
        self._searches_of.clear()
        self._loading_store = None

    def drop(self, stores: Collection[StoreKey]) -> None:
        """Evict stores that were changed, so that erased content does not stay until the next search."""
        for key in [key for key in self._corpora if key[0] in stores]:
            del self._corpora[key]
        if self._loading_store in stores:
            self._loading_store = None

    async def loaded(self) -> None:
        """Wait until nothing is being loaded."""
        if self._loading is not None:
            await asyncio.wait([self._loading])

    async def close(self) -> None:
        """Stop loading, and evict everything."""
        if self._loading is not None:
            self._loading.cancel()
        await self.loaded()
        self.clear()

    def corpora(self, states: Mapping[StoreKey, CorpusState], model: str, dimensions: int) -> list[Corpus] | None:
        """Return the corpora of some stores in these states; None if not all are cached, and then load one of them."""
        # Corpora that do not fit together are not loaded.
        if sum(bytes_of(each.rows, dimensions, each.postings) for each in states.values()) > self._limit_bytes:
            return None
        corpora = []
        for store, state in states.items():
            key = (store, model)
            cached = self._corpora.get(key)
            if cached is not None and cached.changed == state.changed:
                corpora.append(cached)
            elif self._is_searched_often(store, state) and (self._loading is None or self._loading.done()):
                # After a failure the next attempt is that many searches away.
                self._searches_of[store] = (state.changed, -_RETRY_SEARCHES)
                self._loading_store = store
                self._loading = asyncio.create_task(self._load(key, dimensions))
        return corpora if len(corpora) == len(states) else None

    async def _load(self, key: _Key, dimensions: int) -> None:
        """Load a store, and cache it unless it was dropped meanwhile."""
        store, model = key
        try:
            async with asyncio.timeout(_LOAD_TIMEOUT_S), self._connections(store[0]) as connection:
                row = await connection.fetchrow(_SQL["corpus"], *store, model)
                corpus = await asyncio.to_thread(_corpus, store, row, dimensions)
        except (TimeoutError, CounterpointError, asyncpg.PostgresError) as error:
            log.warning("corpus.not_cached", project=store[0], store=store[1], reason=str(error) or "too slow")
        except Exception as error:
            # This task is not awaited, so the error would not be reported elsewhere.
            log.error("corpus.load_failed", project=store[0], store=store[1], exc_info=error)
        else:
            if self._loading_store == store:
                self._add(key, corpus)
        finally:
            self._loading_store = None

    def _is_searched_often(self, store: StoreKey, state: CorpusState) -> bool:
        changed, times = self._searches_of.get(store, (state.changed, 0))
        times = times + 1 if changed == state.changed else 1
        self._searches_of[store] = (state.changed, times)
        return times >= self._searches

    def _add(self, key: _Key, corpus: Corpus) -> None:
        self._corpora.pop(key, None)
        while self._corpora and self._corpora.currsize + corpus.bytes > self._limit_bytes:
            (store, _), _ = self._corpora.popitem()
            self._searches_of.pop(store, None)
        if corpus.bytes <= self._limit_bytes:
            self._corpora[key] = corpus


def _corpus(store: StoreKey, row: Any, dimensions: int) -> Corpus:
    """Parse a row of `_SQL["corpus"]`."""

    def array(name: str, kind: str, native: Any) -> Any:
        return np.frombuffer(row[name] or b"", kind).astype(native)

    rows, with_vector = array("rows", ">i8", np.int64), array("meant", "?", np.bool_)
    vectors = np.zeros((len(rows), dimensions), np.float32)
    vectors[with_vector] = array("vectors", ">f4", np.float32).reshape(-1, dimensions)
    order = np.argsort(rows)
    rows = rows[order]
    hashes = array("terms", ">i8", np.int64)
    by_term = np.argsort(hashes, kind="stable")
    terms, starts = np.unique(hashes[by_term], return_index=True)
    ids, types, names = row["ids"] or (), row["types"] or (), row["names"] or ()
    return Corpus(
        key=store,
        changed=row["changed"] or "",
        rows=rows,
        labels=array("labels", ">i2", np.int16)[order],
        lengths=array("lengths", ">i4", np.int32)[order],
        chars=array("chars", ">i4", np.int32)[order],
        ids=[ids[n] for n in order],
        types=[types[n] for n in order],
        names=[tuple(filter(None, names[n].split(chr(31)))) for n in order],
        known=array("known", "?", np.bool_)[order],
        with_vector=with_vector[order],
        vectors=vectors[order],
        terms=terms,
        starts=np.append(starts, len(hashes)),
        holders=np.searchsorted(rows, array("holders", ">i8", np.int64)[by_term]).astype(np.int32),
        times=array("times", ">i2", np.int16)[by_term],
    )
