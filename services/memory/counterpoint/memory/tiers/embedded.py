"""Vectors of records that are kept by meaning: their declared text fields, embedded once for each content."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.guard.policy import Policy
from counterpoint.memory.database import Database
from counterpoint.memory.retrieval.embed import Vectors
from counterpoint.memory.search import Search
from counterpoint.memory.tiers.tier import Change

_CACHED = "SELECT sha256, embedding FROM embeddings WHERE project = $1 AND model = $2 AND sha256 = ANY ($3)"
_CACHE = """
INSERT INTO embeddings (project, model, sha256, embedding)
SELECT $1, $2, sha256, embedding::vector FROM unnest($3::bytea[], $4::text[]) AS new(sha256, embedding)
ON CONFLICT DO NOTHING
"""


class Embedded:
    """Embeds records, by the table `embeddings`."""

    def __init__(self, database: Database, policy: Policy, search: Search) -> None:
        self._database = database
        self._policy = policy
        self._search = search

    async def with_vectors(self, project: str, changes: Sequence[Change]) -> list[Change]:
        """The changes, each that is not a removal with its vector."""
        texts = [self.text(change.store, change.body) for change in changes if change.body is not None]
        vectors = iter(await self.vectors(project, texts))
        return [c if c.body is None else dataclasses.replace(c, vector=next(vectors)) for c in changes]

    def text(self, store: str, body: Mapping[str, Any]) -> str:
        """What a record says, in the fields that the policy declares as text."""
        values = (body.get(name) for name in self._policy.stores[store].text)
        return "\n".join(value for value in values if isinstance(value, str))

    async def vectors(self, project: str, texts: Sequence[str]) -> list[Vectors]:
        """One unit vector a text."""
        if not texts:
            return []
        model = self._search.model_id
        digests = [hashlib.sha256(text.encode(errors="replace")).digest() for text in texts]
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_CACHED, project, model, list(set(digests)))
        known = {bytes(row["sha256"]): np.asarray(row["embedding"].to_numpy(), np.float32) for row in rows}
        missing = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in known}
        if missing:
            made = await self._search.embed_texts(list(missing.values()))
            known |= zip(missing, made, strict=True)
            written = [str(vector.tolist()) for vector in made]
            async with self._database.writing(project) as connection:
                await connection.execute(_CACHE, project, model, list(missing), written)
        return [known[digest] for digest in digests]
