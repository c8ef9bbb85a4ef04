"""Vectors in RAM: those of stores that are searched often between two changes are read once, not by every search."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from counterpoint.memory.retrieval.embed import Vectors

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

LIMIT_BYTES = 128 << 20
"""All that is held. What has not been searched by for longest goes first."""
SEARCHES = 4
"""So many searches of an unchanged store cost about what reading its vectors for RAM does."""

_ASKED = 10_000
"""So many places are remembered to have been searched."""

Place = tuple[str, str]
"""Project and store."""
_Key = tuple[Place, str]


@dataclass(frozen=True, slots=True)
class State:
    """Which transactions last changed a place (`CHANGED`), and how many rows it has."""

    changed: str
    rows: int


CHANGED = "string_agg(changed::text, ' ' ORDER BY label) || ' ' || pg_postmaster_start_time()"
"""Of the rows of a place in `corpora`. In a database that was restored the same transaction may be another."""

# One statement, so that the state is that of the vectors. All arrays are in the order in which the rows are read.
_READ = f"""
SELECT (SELECT {CHANGED} FROM corpora WHERE project = $1 AND store = $2) AS changed,
    string_agg(int8send(row), '') AS rows, string_agg(int2send(label), '') AS labels,
    string_agg(substr(vector_send(embedding), 5), '') AS vectors
FROM meanings WHERE project = $1 AND store = $2 AND model = $3 AND embedding IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The rows that are nearest, and how the cosines of all rows in scope are spread: mean and deviation."""

    rows: list[int]
    mean: float | None
    deviation: float | None


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The vectors of a place by a model, (n, dimensions) float32, as they were when it was last changed."""

    changed: str
    rows: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int16]
    vectors: Vectors

    @property
    def bytes(self) -> int:
        return self.rows.nbytes + self.labels.nbytes + self.vectors.nbytes


class Held:
    """Vectors by project, store and model. What it finds is what the database would find in the same state."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES, searches: int = SEARCHES) -> None:
        self._limit_bytes = limit_bytes
        self._searches = searches
        self._held: OrderedDict[_Key, _Matrix] = OrderedDict()
        self._asked: OrderedDict[_Key, tuple[str, int]] = OrderedDict()
        self._reading: set[_Key] = set()

    def clear(self) -> None:
        """Hold nothing."""
        self._held.clear()
        self._asked.clear()

    def drop(self, places: Collection[Place]) -> None:
        """Hold nothing of places that were changed: what was erased is not to stay here until somebody searches."""
        for key in [key for key in self._held if key[0] in places]:
            del self._held[key]

    async def nearest(
        self,
        connection: "Connection",
        states: Mapping[Place, State],
        model: str,
        max_label: int,
        vector: Vectors,
        most: int,
        of_rows: Sequence[int] | None = None,
    ) -> Nearest | None:
        """The `most` rows nearest to `vector`, (dimensions,), of labels up to `max_label`; None where not all is held.

        `states` are those of the places that are searched, as the search sees them. With `of_rows` no others exist.
        """
        found = [await self._matrix(connection, (place, model), state, len(vector)) for place, state in states.items()]
        matrices = [matrix for matrix in found if matrix is not None]
        if len(matrices) < len(found):
            return None
        rows, cosines = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        for matrix in matrices:
            seen = matrix.labels <= max_label
            if of_rows is not None:
                seen &= np.isin(matrix.rows, np.asarray(of_rows, np.int64))
            rows.append(matrix.rows[seen])
            # Not by BLAS, whose threads would wait busily on cores that others need.
            cosines.append(np.einsum("ij,j->i", matrix.vectors, vector)[seen])
        return _nearest(np.concatenate(rows), np.concatenate(cosines), most)

    async def _matrix(self, connection: "Connection", key: _Key, state: State, dimensions: int) -> _Matrix | None:
        """A place's vectors in a state; read where it has been searched often enough since it is as it is."""
        held = self._held.get(key)
        if held is not None and held.changed == state.changed:
            self._held.move_to_end(key)
            return held
        self._held.pop(key, None)
        large = state.rows * dimensions * 4 > self._limit_bytes
        if large or not self._often(key, state) or key in self._reading:
            return None
        self._reading.add(key)
        try:
            row = await connection.fetchrow(_READ, *key[0], key[1])
        finally:
            self._reading.discard(key)
        assert row is not None
        matrix = _Matrix(
            row["changed"] or "",
            np.frombuffer(row["rows"] or b"", ">i8").astype(np.int64),
            np.frombuffer(row["labels"] or b"", ">i2").astype(np.int16),
            np.frombuffer(row["vectors"] or b"", ">f4").astype(np.float32).reshape(-1, dimensions),
        )
        if matrix.changed != state.changed:
            return None
        self._keep(key, matrix)
        return matrix

    def _often(self, key: _Key, state: State) -> bool:
        changed, times = self._asked.pop(key, (state.changed, 0))
        times = times + 1 if changed == state.changed else 1
        self._asked[key] = (state.changed, times)
        while len(self._asked) > _ASKED:
            self._asked.popitem(last=False)
        return times >= self._searches

    def _keep(self, key: _Key, matrix: _Matrix) -> None:
        self._held[key] = matrix
        while sum(each.bytes for each in self._held.values()) > self._limit_bytes:
            self._held.popitem(last=False)


def _nearest(rows: npt.NDArray[np.int64], cosines: Vectors, most: int) -> Nearest:
    """The best of all, and how all are spread. Pure."""
    if not len(rows):
        return Nearest([], None, None)
    best = np.argpartition(-cosines, most)[:most] if len(rows) > most else np.arange(len(rows))
    return Nearest(rows[best].tolist(), float(cosines.mean(dtype=np.float64)), float(cosines.std(dtype=np.float64)))
