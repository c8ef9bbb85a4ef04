"""Stores in RAM: what is searched often between two changes is read once, not by every search."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import numpy as np
import structlog

from counterpoint.memory.search.corpus_index import Corpus, Place, bytes_of
from counterpoint.proto.errors import CounterpointError

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

log = structlog.get_logger()

LIMIT_BYTES = 128 << 20
"""All that is held. What has not been searched by for longest goes first."""
SEARCHES = 4
"""Searches of an unchanged store before it is loaded into RAM. Loading 6,400 rows takes .15 s, which ten later
searches save."""

_PATIENCE_S = 20.0
"""Timeout of loading a store, in seconds."""
_RESTS = 100
"""Further searches before a failed load is retried."""
_ASKED = 10_000
"""Maximum number of stores whose searches are counted."""

_Key = tuple[Place, str]


@dataclass(frozen=True, slots=True)
class CorpusState:
    """Which transactions last changed a place (`CHANGED`), and how many rows and postings it has."""

    changed: str
    rows: int
    postings: int


CHANGED = "string_agg(changed::text, ' ' ORDER BY label) || ' ' || pg_postmaster_start_time()"
"""SQL of the state of a store's rows in `corpora`. A transaction id is reused in a restored database."""

HASH = "hashtextextended(term, 0)"
"""SQL of the key of a term in RAM, 8 bytes."""

# One statement, so that the state is that of all the rest. Arrays of one table are in the order in which it is read.
_READ = f"""
SELECT (SELECT {CHANGED} FROM corpora WHERE project = $1 AND store = $2) AS changed, of_rows.*, of_terms.*
FROM (
    SELECT string_agg(int8send(v.row), '') AS rows, string_agg(int2send(v.label), '') AS labels,
        string_agg(int4send(length(lexemes)), '') AS lengths, string_agg(int4send(chars), '') AS chars,
        array_agg(id) AS ids, array_agg(type) AS types, array_agg(array_to_string(names, chr(31))) AS names,
        string_agg(boolsend(m.model IS NOT NULL), '') AS known,
        string_agg(boolsend(m.embedding IS NOT NULL), '') AS meant,
        string_agg(substr(vector_send(m.embedding), 5), '') AS vectors
    FROM vectors v LEFT JOIN meanings m ON m.row = v.row AND m.model = $3 AND m.project = $1
    WHERE v.project = $1 AND v.store = $2) AS of_rows,
    (
    SELECT string_agg(int8send({HASH}), '') AS terms, string_agg(int8send(row), '') AS holders,
        string_agg(int2send(tf), '') AS times
    FROM postings WHERE project = $1 AND store = $2) AS of_terms
"""


class CorpusCache:
    """Corpora by project, store and model. What is found in them is what the database would find in the same state.

    They are read beside the searches, one at a time, for what is read takes more than twice the memory meanwhile.
    `connections` gives one for a statement for which only the rows of a project exist.
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
        self._held: OrderedDict[_Key, Corpus] = OrderedDict()
        self._asked: OrderedDict[Place, tuple[str, int]] = OrderedDict()
        self._reading: asyncio.Task[None] | None = None
        self._read: Place | None = None
        """Store that is being loaded, None if it was dropped since."""

    def clear(self) -> None:
        """Hold nothing."""
        self._held.clear()
        self._asked.clear()
        self._read = None

    def drop(self, places: Collection[Place]) -> None:
        """Hold nothing of places that were changed: what was erased is not to stay here until somebody searches."""
        for key in [key for key in self._held if key[0] in places]:
            del self._held[key]
        if self._read in places:
            self._read = None

    async def settled(self) -> None:
        """When nothing is being read."""
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def close(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()
        await self.settled()
        self.clear()

    def corpora(self, states: Mapping[Place, CorpusState], model: str, dimensions: int) -> list[Corpus] | None:
        """Those of some places in these states; None where not all are held, and one of them is read for the next."""
        # What cannot be held together is not read.
        if sum(bytes_of(each.rows, dimensions, each.postings) for each in states.values()) > self._limit_bytes:
            return None
        corpora = []
        for place, state in states.items():
            key = (place, model)
            held = self._held.get(key)
            if held is not None and held.changed == state.changed:
                self._held.move_to_end(key)
                corpora.append(held)
            elif self._often(place, state) and (self._reading is None or self._reading.done()):
                # Where this fails it is so long before anybody tries again.
                self._asked[place] = (state.changed, -_RESTS)
                self._read = place
                self._reading = asyncio.create_task(self._hold(key, dimensions))
        return corpora if len(corpora) == len(states) else None

    async def _hold(self, key: _Key, dimensions: int) -> None:
        """Read a place, and hold it where it was not dropped meanwhile."""
        place, model = key
        try:
            async with asyncio.timeout(_PATIENCE_S), self._connections(place[0]) as connection:
                row = await connection.fetchrow(_READ, *place, model)
                corpus = await asyncio.to_thread(_corpus, place, row, dimensions)
        except (TimeoutError, CounterpointError, asyncpg.PostgresError) as error:
            log.warning("corpus.not_cached", project=place[0], store=place[1], reason=str(error) or "too slow")
        except Exception as error:
            # Nobody waits for this task to hear of it.
            log.error("corpus.load_failed", project=place[0], store=place[1], exc_info=error)
        else:
            if self._read == place:
                self._keep(key, corpus)
        finally:
            self._read = None

    def _often(self, place: Place, state: CorpusState) -> bool:
        changed, times = self._asked.pop(place, (state.changed, 0))
        times = times + 1 if changed == state.changed else 1
        self._asked[place] = (state.changed, times)
        while len(self._asked) > _ASKED:
            self._asked.popitem(last=False)
        return times >= self._searches

    def _keep(self, key: _Key, corpus: Corpus) -> None:
        self._held[key] = corpus
        while sum(each.bytes for each in self._held.values()) > self._limit_bytes:
            (place, _), _ = self._held.popitem(last=False)
            self._asked.pop(place, None)


def _corpus(place: Place, row: Any, dimensions: int) -> Corpus:
    """Parse a row of `_READ`."""

    def array(name: str, kind: str, native: Any) -> Any:
        return np.frombuffer(row[name] or b"", kind).astype(native)

    rows, meant = array("rows", ">i8", np.int64), array("meant", "?", np.bool_)
    vectors = np.zeros((len(rows), dimensions), np.float32)
    vectors[meant] = array("vectors", ">f4", np.float32).reshape(-1, dimensions)
    order = np.argsort(rows)
    rows = rows[order]
    hashes = array("terms", ">i8", np.int64)
    by_term = np.argsort(hashes, kind="stable")
    terms, starts = np.unique(hashes[by_term], return_index=True)
    ids, types, names = row["ids"] or (), row["types"] or (), row["names"] or ()
    return Corpus(
        place=place,
        changed=row["changed"] or "",
        rows=rows,
        labels=array("labels", ">i2", np.int16)[order],
        lengths=array("lengths", ">i4", np.int32)[order],
        chars=array("chars", ">i4", np.int32)[order],
        ids=[ids[n] for n in order],
        types=[types[n] for n in order],
        names=[tuple(filter(None, names[n].split(chr(31)))) for n in order],
        known=array("known", "?", np.bool_)[order],
        meant=meant[order],
        vectors=vectors[order],
        terms=terms,
        starts=np.append(starts, len(hashes)),
        holders=np.searchsorted(rows, array("holders", ">i8", np.int64)[by_term]).astype(np.int32),
        times=array("times", ">i2", np.int16)[by_term],
    )
