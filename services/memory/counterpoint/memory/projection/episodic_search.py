"""Asking episodic memory: the tier where it is there and up to date, else the record itself, row by row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.memory.commit.pipeline import Embeddings
from counterpoint.memory.embedding.model import Vectors
from counterpoint.memory.projection.episodic import DIGITS, matches
from counterpoint.memory.projection.projection import Projection, change_of, with_vectors
from counterpoint.memory.projection.tier import Hit, Scope, SearchingTier
from counterpoint.memory.record.database import Database
from counterpoint.proto.errors import Away

PATIENCE_S = 1.0
"""Maximum wait of a search for earlier commits, in seconds."""
WITHOUT_TIER = "exact, episodic is away"
"""The plan of an answer that the record gave in the place of the tier."""
_PAGE = 1000
_ROWS = """
SELECT store, id, version, seq, author, label, integrity, task_id, schema_version, body FROM records
WHERE project = $1 AND store = ANY ($2) AND label <= $3 AND body IS NOT NULL AND seq > $4 ORDER BY seq LIMIT $5
"""


@dataclass(frozen=True, slots=True)
class Recalled:
    """Results of a search, best first, and its plan."""

    hits: tuple[Hit, ...]
    plan: str


class Recall:
    """Searches episodic stores."""

    def __init__(self, tier: SearchingTier, projection: Projection, database: Database, embeddings: Embeddings) -> None:
        self._tier = tier
        self._projection = projection
        self._database = database
        self._embeddings = embeddings

    async def search(self, scope: Scope, vector: Vectors, where: Mapping[str, Any], k: int) -> Recalled:
        """The `k` nearest. Raises `Permanent` for what cannot be filtered by, `Away` when the record is away too."""
        if await self._projection.caught_up(scope.project, PATIENCE_S):
            try:
                return Recalled(tuple(await self._tier.search(scope, vector, where, k)), "nearest")
            except Away:
                self._projection.mark(scope.project)
        return Recalled(await self._exact(scope, vector, where, k), WITHOUT_TIER)

    async def _exact(self, scope: Scope, vector: Vectors, where: Mapping[str, Any], k: int) -> tuple[Hit, ...]:
        """Every record in scope, by its cosine."""
        hits: list[Hit] = []
        after = 0
        while True:
            async with self._database.reading(scope.project) as connection:
                asked = (scope.project, list(scope.stores), scope.clearance, after, _PAGE)
                rows = await connection.fetch(_ROWS, *asked)
            changes = [change for row in rows if matches(change := change_of(scope.project, row), where)]
            for change in await with_vectors(self._embeddings, scope.project, changes, self._tier.model):
                score = round(float(np.dot(change.vector, vector)), DIGITS) if change.vector is not None else 0.0
                hits.append(Hit(change.store, change.id, change.version, score))
            hits = sorted(hits, key=lambda hit: (-hit.score, hit.store, hit.id))[:k]
            if len(rows) < _PAGE:
                return tuple(hits)
            after = rows[-1]["seq"]
