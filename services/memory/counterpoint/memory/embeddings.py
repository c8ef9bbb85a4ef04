"""The vectors of records that are kept by meaning; the same text is never embedded twice."""

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.guard.policy import Policy
from counterpoint.memory.database import Database
from counterpoint.memory.retrieval.embed import Whose
from counterpoint.memory.retrieval.fuse import LANGUAGES
from counterpoint.memory.retrieval.terms import terms
from counterpoint.memory.rows import Prepared, WriteRow
from counterpoint.memory.search import Search, Text
from counterpoint.memory.tiers.tier import Change

_CACHED = "SELECT sha256, embedding FROM embeddings WHERE project = $1 AND model = $2 AND sha256 = ANY ($3)"
_CACHE = """
INSERT INTO embeddings (project, model, sha256, embedding)
SELECT $1, $2, sha256, embedding::vector FROM unnest($3::bytea[], $4::text[]) AS new(sha256, embedding)
ON CONFLICT DO NOTHING
"""


class Embeddings:
    """Embeds through a table of what was embedded before, by project, model and content."""

    def __init__(self, database: Database, policy: Policy, search: Search) -> None:
        self._database = database
        self._policy = policy
        self._search = search

    async def beside(self, prepared: Prepared) -> tuple[Prepared, int]:
        """The same commit with the vectors of its rows, and how many texts had to be embedded for them."""
        rows = [row for row in prepared.writes if row.body is not None and self._vectored(row)]
        if not rows:
            return prepared, 0
        bodies = [json.loads(row.body or "{}") for row in rows]
        texts = [self._text(row, body) for row, body in zip(rows, bodies, strict=True)]
        label = max(row.label for row in rows)
        vectors, embedded = await self.of(prepared.project, [text.text for text in texts], label)

        def laid_beside() -> Prepared:
            beside = tuple(
                self._search.row(row.store, row.id, row.expect + 1, row.label, text, vector)
                for row, text, vector in zip(rows, texts, vectors, strict=True)
            )
            return dataclasses.replace(prepared, vectors=beside, model=self._search.model_id)

        return await asyncio.to_thread(laid_beside), embedded

    async def of(
        self, project: str, texts: Sequence[str], label: int = 0, job: str | None = None
    ) -> tuple[list[Any], int]:
        """The vectors of some texts in their order, and how many of them were new.

        `label` is the highest of the texts, `job` what a model outside is paid for by; without one there is one of the
        project for all.
        """
        if not texts:
            return [], 0
        digests = [hashlib.sha256(text.encode(errors="replace")).digest() for text in texts]
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_CACHED, project, self._search.model_id, list(set(digests)))
        known = {bytes(row["sha256"]): np.asarray(row["embedding"].to_numpy(), np.float32) for row in rows}
        missing = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in known}
        if missing:
            whose = Whose(project, label, job) if job else Whose(project, label)
            made = await self._search.embed_texts(list(missing.values()), whose)
            known |= zip(missing, made, strict=True)
            as_text = await asyncio.to_thread(lambda: [str(vector.tolist()) for vector in made])
            async with self._database.writing(project) as connection:
                await connection.execute(_CACHE, project, self._search.model_id, list(missing), as_text)
        return [known[digest] for digest in digests], len(missing)

    async def with_vectors(self, project: str, changes: Sequence[Change]) -> list[Change]:
        """The changes, each that is not a removal with its vector."""
        texts = [self.text(change.store, change.body) for change in changes if change.body is not None]
        label = max((change.label for change in changes), default=0)
        found, _ = await self.of(project, texts, label)
        vectors = iter(found)
        return [each if each.body is None else dataclasses.replace(each, vector=next(vectors)) for each in changes]

    def _vectored(self, row: WriteRow) -> bool:
        return self._policy.stores[row.store].tier == "vector"

    def text(self, store: str, body: Mapping[str, Any]) -> str:
        """The text of a record that is embedded; of a turn with who said it, for a name makes much of a meaning."""
        if store == "chunks":
            speaker = body.get("speaker")
            return f"{speaker}: {body['text']}" if speaker else str(body["text"])
        values = (body.get(name) for name in self._policy.stores[store].text)
        return "\n".join(value for value in values if isinstance(value, str))

    def _text(self, row: WriteRow, body: Mapping[str, Any]) -> Text:
        text = self.text(row.store, body)
        if row.store != "chunks":
            return Text(row.id, text)
        title = body.get("title", "")
        context = body["context"] if title in ("", body["source"]) else f"{title}\n{body['context']}"
        if body.get("type") in LANGUAGES:
            context = f"{context}\n{body['type']}"
        return Text(
            source=body["source"],
            text=text,
            context=context,
            around=tuple(body.get("around", ())),
            type=body.get("type", ""),
            names=tuple(terms(body.get("speaker", "")).words.split()),
        )
