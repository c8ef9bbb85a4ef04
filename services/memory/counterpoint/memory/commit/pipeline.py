"""Embedding pipeline: vectors of records in the vector tier; the same text is never embedded twice."""

import asyncio
import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import structlog

from counterpoint.guard.policy import Policy
from counterpoint.memory.commit.committer import Committer, ModelChanged
from counterpoint.memory.embedding.model import EmbeddingModel, TextContext
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan, PlannedWrite
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.search.fusion import LANGUAGES
from counterpoint.memory.search.terms import terms
from counterpoint.memory.search.vectors import ModelGone, SearchEngine, SearchText
from counterpoint.proto.errors import CounterpointError, Denied
from counterpoint.proto.memory import CommitReply

log = structlog.get_logger()

_ATTEMPTS = 50
_CHANGING_S = 0.05
_PATIENCE_S = 5.0
"""Timeout of a commit for vectors of the second model, in seconds."""
_REST_S = 30.0
"""Back-off after a failure of the second model, in seconds."""
_SQL = load_statements(__package__)


class EmbeddingPipeline:
    """Embeds through a table of earlier embeddings, by project, model and content."""

    def __init__(self, database: Database, policy: Policy, search: SearchEngine) -> None:
        self._database = database
        self._policy = policy
        self._search = search
        self._rests: dict[str, float] = {}

    async def applied(self, committer: Committer, plan: CommitPlan) -> tuple[CommitReply, int]:
        """Apply a commit with the vectors of its rows; return its reply and the number of embedded texts.

        If the model changes meanwhile, the texts are embedded again. Raises the errors of embedding and of applying.
        """
        for _ in range(_ATTEMPTS):
            with_vectors, embedded = await self.beside(plan)
            try:
                return await committer.apply(with_vectors), embedded
            except ModelChanged:
                # The record has changed already; this process will know soon.
                await asyncio.sleep(_CHANGING_S)
        with_vectors, embedded = await self.beside(plan)
        return await committer.apply(with_vectors), embedded

    async def beside(self, plan: CommitPlan) -> tuple[CommitPlan, int]:
        """Return the commit with the vectors of its rows by all models that are kept, and the number of embedded texts.

        A commit does not fail because of the other model: its missing vectors are added later.
        """
        vectored = [row for row in plan.writes if row.body is not None and self._vectored(row)]
        loaded = [(row, json.loads(row.body or "{}")) for row in vectored]
        searched = [pair for pair in loaded if not self._policy.stores[pair[0].store].hidden(pair[1])]
        if not searched:
            return plan, 0
        rows, bodies = [row for row, _ in searched], [body for _, body in searched]
        texts = [self._text(row, body) for row, body in zip(rows, bodies, strict=True)]
        label = max(row.label for row in rows)
        active, other = self._search.active.model_id, self._search.other
        contents = [text.text for text in texts]
        by_active = self.of(plan.project, contents, label, model=active)
        if other is None:
            vectors, embedded = await by_active
            by_model = [{active: vector} for vector in vectors]
        else:
            by_other = self._by_other(other, plan.project, contents, label)
            (vectors, embedded), others = await asyncio.gather(by_active, by_other)
            by_model = [
                {active: vector} if second is None else {active: vector, other.model_id: second}
                for vector, second in zip(vectors, others or [None] * len(vectors), strict=True)
            ]

        def with_vectors() -> CommitPlan:
            planned = tuple(
                self._search.row(row.store, row.id, row.expect + 1, row.label, text, vectors)
                for row, text, vectors in zip(rows, texts, by_model, strict=True)
            )
            return dataclasses.replace(plan, vectors=planned)

        return await asyncio.to_thread(with_vectors), embedded

    async def of(
        self, project: str, texts: Sequence[str], label: int = 0, job: str | None = None, *, model: str | None = None
    ) -> tuple[list[Any], int]:
        """Return the vectors of some texts in their order, and the number of new ones.

        `label` is the highest of the texts, `job` the job that pays for a remote model, by default one of the project.
        Without `model` the active one is used. Raises `ModelGone` for one that is not kept.
        """
        if not texts:
            return [], 0
        model = model or self._search.model_id
        digests = [hashlib.sha256(text.encode(errors="replace")).digest() for text in texts]
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["known_embeddings"], project, model, list(set(digests)))
        known = {bytes(row["sha256"]): np.asarray(row["embedding"].to_numpy(), np.float32) for row in rows}
        missing = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in known}
        if missing:
            context = TextContext(project, label, job) if job else TextContext(project, label)
            vectors = await self._search.embed_texts(list(missing.values()), context, model)
            known |= zip(missing, vectors, strict=True)
            as_text = await asyncio.to_thread(lambda: [str(vector.tolist()) for vector in vectors])
            async with self._database.writing(project) as connection:
                await connection.execute(_SQL["add_embeddings"], project, model, list(missing), as_text)
        return [known[digest] for digest in digests], len(missing)

    async def _by_other(
        self, model: EmbeddingModel, project: str, texts: Sequence[str], label: int
    ) -> list[Any] | None:
        """Return the vectors by the other model; None if it does not answer within the timeout."""
        if time.monotonic() < self._rests.get(model.model_id, 0.0):
            return None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return (await self.of(project, texts, label, model=model.model_id))[0]
        except (CounterpointError, TimeoutError) as error:
            if not isinstance(error, Denied | ModelGone):
                self._rests[model.model_id] = time.monotonic() + _REST_S
            log.info("embedding.deferred", model=model.model_id, project=project, reason=str(error))
            return None

    def ask_again(self, model: str) -> None:
        """End the back-off of a model."""
        self._rests.pop(model, None)

    def _vectored(self, row: PlannedWrite) -> bool:
        return self._policy.stores[row.store].tier == "vector"

    def text(self, store: str, body: Mapping[str, Any]) -> str:
        """Return the embedded text of a record; of a turn with its speaker, because a name contributes to the
        meaning."""
        if store == "chunks":
            speaker = body.get("speaker")
            return f"{speaker}: {body['text']}" if speaker else str(body["text"])
        row = self._policy.stores[store]
        values = (body.get(name) for name in row.text if name not in row.unsearched)
        return "\n".join(value for value in values if isinstance(value, str))

    def _text(self, row: PlannedWrite, body: Mapping[str, Any]) -> SearchText:
        text = self.text(row.store, body)
        if row.store != "chunks":
            return SearchText(row.id, text)
        title = body.get("title", "")
        context = body["context"] if title in ("", body["source"]) else f"{title}\n{body['context']}"
        if body.get("type") in LANGUAGES:
            context = f"{context}\n{body['type']}"
        return SearchText(
            source=body["source"],
            text=text,
            context=context,
            around=tuple(body.get("around", ())),
            type=body.get("type", ""),
            names=tuple(terms(body.get("speaker", "")).words.split()),
        )
