"""Search of episodic memory: by the tier if it is up to date, else by the record, row by row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.embedding.model import Vectors
from counterpoint.memory.projection.episodic import DIGITS, matches
from counterpoint.memory.projection.projection import Projection, change_of, with_vectors
from counterpoint.memory.projection.tier import SearchingTier, TierHit, TierScope
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import Away
from counterpoint.proto.memory import QueryPlan

CATCH_UP_TIMEOUT_S = 1.0
"""Maximum wait of a search for earlier commits, in seconds."""
_PAGE = 1000
_SQL = load_statements(__package__)


@dataclass(frozen=True, slots=True)
class EpisodicResults:
    """Results of a search, best first, and its plan."""

    hits: tuple[TierHit, ...]
    plan: QueryPlan


class EpisodicSearch:
    """Searches episodic stores."""

    def __init__(
        self, tier: SearchingTier, projection: Projection, database: Database, embeddings: EmbeddingPipeline
    ) -> None:
        self._tier = tier
        self._projection = projection
        self._database = database
        self._embeddings = embeddings

    async def search(self, scope: TierScope, vector: Vectors, where: Mapping[str, Any], k: int) -> EpisodicResults:
        """Return the `k` nearest. Raises `Permanent` for an invalid filter, `Away` if the record is away too."""
        if await self._projection.caught_up(scope.project, CATCH_UP_TIMEOUT_S):
            try:
                return EpisodicResults(tuple(await self._tier.search(scope, vector, where, k)), QueryPlan.NEAREST)
            except Away:
                self._projection.mark(scope.project)
        return EpisodicResults(await self._exact(scope, vector, where, k), QueryPlan.WITHOUT_TIER)

    async def _exact(self, scope: TierScope, vector: Vectors, where: Mapping[str, Any], k: int) -> tuple[TierHit, ...]:
        """Compare every record in scope by its cosine."""
        hits: list[TierHit] = []
        after = 0
        while True:
            async with self._database.reading(scope.project) as connection:
                arguments = (scope.project, list(scope.stores), scope.clearance, after, _PAGE)
                rows = await connection.fetch(_SQL["records_by_ids"], *arguments)
            changes = [change for row in rows if matches(change := change_of(scope.project, row), where)]
            for change in await with_vectors(self._embeddings, scope.project, changes, self._tier.model):
                score = round(float(np.dot(change.vector, vector)), DIGITS) if change.vector is not None else 0.0
                hits.append(TierHit(change.store, change.id, change.version, score))
            hits = sorted(hits, key=lambda hit: (-hit.score, hit.store, hit.id))[:k]
            if len(rows) < _PAGE:
                return tuple(hits)
            after = rows[-1]["seq"]
