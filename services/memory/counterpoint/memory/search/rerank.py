"""Reranker: reorders the best passages of a search by a local model that reads question and passage."""

import asyncio
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import structlog

from counterpoint.memory.embedding.folder import Folder, LocalModel
from counterpoint.memory.embedding.folder_embedder import pooled, unit
from counterpoint.memory.embedding.model import Vectors
from counterpoint.proto.memory import HybridSearch, Item

log = structlog.get_logger()

RERANKED = 20
"""Maximum number of passages that are reranked; each costs a run of the model."""
_STORE = "chunks"
_LABELS = 2
"""Maximum number of outputs of a cross-encoder: one, or one each for no and yes."""
_PROBE = ("What is read?", "Question and passage are read.")


class Reranker:
    """Scores in [0, 1] of passages for a question.

    A model with one or two outputs for a pair is a cross-encoder, whose logit becomes a probability; any other is a
    bi-encoder, and the score is the cosine of question and passage. Raises `Permanent` for a model that cannot be
    loaded.
    """

    def __init__(self, folder: Folder, threads: int | None = None) -> None:
        self._model = LocalModel(folder)
        self._by_first_token = folder.by_first_token()
        self._threads = threads or os.cpu_count() or 1
        self._workers = ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix="rerank")
        self.model_id = folder.model_id
        log.info("reranker.loaded", model=self.model_id, kind="cross-encoder" if self.reads_pairs else "bi-encoder")

    @cached_property
    def reads_pairs(self) -> bool:
        """Whether the model is a cross-encoder."""
        outputs = self._model.run(self._model.encode(*_PROBE))
        return outputs.ndim == 1 and outputs.shape[0] <= _LABELS

    async def scores(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return a score for each passage; computed in threads, so that the loop stays free."""
        loop = asyncio.get_running_loop()
        of_question = None
        if not self.reads_pairs:
            of_question = await loop.run_in_executor(self._workers, self._vector, question)

        def scored(share: Sequence[str]) -> list[float]:
            return [self._score(question, of_question, passage) for passage in share]

        shares = [passages[n :: self._threads] for n in range(self._threads)]
        done = await asyncio.gather(*(loop.run_in_executor(self._workers, scored, share) for share in shares))
        return [done[n % self._threads][n // self._threads] for n in range(len(passages))]

    def close(self) -> None:
        """Stop the threads."""
        self._workers.shutdown()

    def _score(self, question: str, of_question: Vectors | None, passage: str) -> float:
        if of_question is not None:
            return max(0.0, float(of_question @ self._vector(passage)))
        outputs = self._model.run(self._model.encode(question, passage))
        logit = float(outputs[-1] - outputs[0]) if outputs.shape[0] == _LABELS else float(outputs[0])
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, logit))))

    def _vector(self, text: str) -> Vectors:
        return unit(pooled(self._model.run(self._model.encode(text)), by_first_token=self._by_first_token))


def widened(query: HybridSearch) -> HybridSearch | None:
    """Return the search for more hits, whose best are reranked; None if the order of the legs alone was requested."""
    if query.store != _STORE or query.vector_weight is not None:
        return None
    return query if query.k >= RERANKED else query.model_copy(update={"k": RERANKED})


async def reranked(reranker: Reranker, query: HybridSearch, items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the `k` best of `items` by the reranker.

    Its score is their score, and `rerank` among their scores; `fused` is the former one. Items that were not reranked
    follow in their former order.
    """
    reranked_items, rest = items[:RERANKED], items[RERANKED:]
    found = await reranker.scores(query.text, [str((item.body or {}).get("text", "")) for item in reranked_items])
    ordered = sorted(zip(reranked_items, found, strict=True), key=lambda pair: -pair[1])
    least = min(found, default=1.0)
    scored = [_scored(item, score, score) for item, score in ordered]
    scored += [_scored(item, least * (item.score or 0.0), None) for item in rest]
    return tuple(scored[: query.k])


def _scored(item: Item, score: float, by_reranker: float | None) -> Item:
    signs = dict(item.scores or {}) | {"fused": item.score or 0.0}
    if by_reranker is not None:
        signs["rerank"] = round(by_reranker, 6)
    return item.model_copy(update={"score": round(score, 6), "scores": signs})
