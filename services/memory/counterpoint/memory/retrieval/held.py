"""Stores in RAM: what is searched often between two changes is read once, not by every search."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import asyncpg
import numpy as np
import structlog

from counterpoint.memory.retrieval.corpus import Corpus, Place, bytes_of
from counterpoint.proto.errors import CounterpointError

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

log = structlog.get_logger()

LIMIT_BYTES = 128 << 20
"""All that is held. What has not been searched by for longest goes first."""
SEARCHES = 8
"""How often an unchanged store is searched before it is read for RAM. Reading takes as long as ten searches save that
follow where there are 6,000 rows of 60 terms (0.3 s), and as 25 where there are 20,000 (0.9 s)."""

_PATIENCE_S = 20.0
"""How long a store may take to be read."""
_RESTS = 100
"""How many searches go by, beside those, before a store is read again that could not be."""
_ASKED = 10_000
"""So many places are remembered to have been searched."""

_Key = tuple[Place, str]


@dataclass(frozen=True, slots=True)
class State:
    """Which transactions last changed a place (`CHANGED`), and how many rows and postings it has."""

    changed: str
    rows: int
    postings: int


CHANGED = "string_agg(changed::text, ' ' ORDER BY label) || ' ' || pg_postmaster_start_time()"
"""Of the rows of a place in `corpora`. In a database that was restored the same transaction may be another."""

# One statement, so that the state is that of all the rest. Arrays of one table are in the order in which it is read.
_READ = f"""
SELECT (SELECT {CHANGED} FROM corpora WHERE project = $1 AND store = $2) AS changed, of_rows.*, of_terms.*
FROM (
    SELECT string_agg(int8send(row), '') AS rows, string_agg(int2send(label), '') AS labels,
        string_agg(int4send(length(lexemes)), '') AS lengths, string_agg(int4send(chars), '') AS chars,
        array_agg(id) AS ids, array_agg(type) AS types, array_agg(array_to_string(names, chr(31))) AS names,
        string_agg(boolsend(model IS NOT NULL), '') AS known, string_agg(boolsend(embedding IS NOT NULL), '') AS meant,
        string_agg(substr(vector_send(embedding), 5), '') AS vectors
    FROM (
        SELECT v.row, v.label, lexemes, chars, id, type, names, m.model, m.embedding
        FROM vectors v LEFT JOIN meanings m ON m.row = v.row AND m.model = $3 AND m.project = $1
        WHERE v.project = $1 AND v.store = $2 ORDER BY v.row) AS placed) AS of_rows,
    (
    SELECT array_agg(term) AS terms, array_agg(many) AS many, string_agg(rows, '') AS holders,
        string_agg(times, '') AS times
    FROM (
        SELECT term, count(*)::int AS many, string_agg(int8send(row), '') AS rows, string_agg(int2send(tf), '') AS times
        FROM postings WHERE project = $1 AND store = $2 GROUP BY term) AS gathered) AS of_terms
"""


_TERMS = """
SELECT count(*) FROM (
    SELECT FROM lexicon WHERE project = $1 AND store = $2 AND rows > 0 GROUP BY term) AS different
"""


class Held:
    """Corpora by project, store and model. What is found in them is what the database would find in the same state.

    They are read beside the searches, one at a time, for what is read takes more than twice the memory meanwhile.
    `connections` gives one in whose transaction only the rows of a project exist.
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
        """What is being read, unless it was dropped since."""

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

    def corpora(self, states: Mapping[Place, State], model: str, dimensions: int) -> list[Corpus] | None:
        """Those of some places in these states; None where not all are held, and one of them is read for the next."""
        sizes = {place: bytes_of(state.rows, dimensions, state.postings) for place, state in states.items()}
        corpora = []
        for place, state in states.items():
            key = (place, model)
            held = self._held.get(key)
            if held is not None and held.changed == state.changed:
                self._held.move_to_end(key)
                sizes[place] = held.bytes
                corpora.append(held)
            elif self._often(place, state) and (self._reading is None or self._reading.done()):
                # Where this fails it is so long before anybody tries again.
                self._asked[place] = (state.changed, -_RESTS)
                self._read = place
                # What cannot be held together is not read.
                room = self._limit_bytes - sum(sizes.values()) + sizes[place]
                self._reading = asyncio.create_task(self._hold(key, state, dimensions, room))
        return corpora if len(corpora) == len(states) else None

    async def _hold(self, key: _Key, state: State, dimensions: int, room: int) -> None:
        """Read a place, and hold it where it takes at most `room` bytes and was not dropped meanwhile."""
        place, model = key
        try:
            async with asyncio.timeout(_PATIENCE_S), self._connections(place[0]) as connection:
                terms = await connection.fetchval(_TERMS, *place)
                if bytes_of(state.rows, dimensions, state.postings, terms) > room:
                    return
                row = await connection.fetchrow(_READ, *place, model)
                corpus = await asyncio.to_thread(_corpus, place, row, dimensions)
        except (TimeoutError, CounterpointError, asyncpg.PostgresError) as error:
            log.warning("store.not_held", project=place[0], store=place[1], reason=str(error) or "too slow")
        else:
            if self._read == place:
                self._keep(key, corpus)
        finally:
            self._read = None

    def _often(self, place: Place, state: State) -> bool:
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
    """What `_READ` says of a place."""

    def array(name: str, kind: str, native: Any) -> Any:
        return np.frombuffer(row[name] or b"", kind).astype(native)

    rows, meant = array("rows", ">i8", np.int64), array("meant", "?", np.bool_)
    vectors = np.zeros((len(rows), dimensions), np.float32)
    vectors[meant] = array("vectors", ">f4", np.float32).reshape(-1, dimensions)
    starts = list(accumulate(row["many"] or (), initial=0))
    return Corpus(
        place=place,
        changed=row["changed"] or "",
        rows=rows,
        labels=array("labels", ">i2", np.int16),
        lengths=array("lengths", ">i4", np.int32),
        chars=array("chars", ">i4", np.int32),
        ids=row["ids"] or (),
        types=row["types"] or (),
        names=[tuple(filter(None, names.split(chr(31)))) for names in row["names"] or ()],
        known=array("known", "?", np.bool_),
        meant=meant,
        vectors=vectors,
        terms=dict(zip(row["terms"] or (), pairwise(starts), strict=True)),
        holders=np.searchsorted(rows, array("holders", ">i8", np.int64)).astype(np.int32),
        times=array("times", ">i2", np.int16),
    )
