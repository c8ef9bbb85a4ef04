"""Embedding by a remote model, called through the manager's gateway."""

import asyncio
from collections.abc import Iterator, Sequence

import numpy as np
import structlog

from counterpoint.client import Gateway
from counterpoint.memory.access.tokens import Tokens
from counterpoint.memory.embedding.model import TextContext, Vectors
from counterpoint.proto.errors import CounterpointError, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.ids import new_id

log = structlog.get_logger()

TEXT_CHARS = 8_000
"""Length limit of a text, in characters: the input limit of models is somewhere beyond."""
BATCH_TEXTS, BATCH_CHARS = 64, 100_000
"""Size limit of one call."""
PARALLEL = 4
"""Concurrent calls."""
DEADLINE_S = 60.0
TRIES = 3
_EMPTY = "(empty)"
"""Replacement for an empty text: no provider refuses it."""
_WAIT_S = 0.5


class RemoteEmbedder:
    """Unit vectors by the gateway's embedding model; `dimensions` is their length.

    The id contains the name of the model and the length, so that vectors of two lengths are never mixed. Each call has
    a key of its own: vectors are cached by content, by `counterpoint.memory.commit.pipeline`, not by call.
    """

    is_remote = True

    def __init__(self, gateway: Gateway, tokens: Tokens, dimensions: int) -> None:
        self._gateway = gateway
        self._tokens = tokens
        self._room = asyncio.Semaphore(PARALLEL)
        self.dimensions = dimensions
        self.model_id = f"{gateway.embedding_model}@{dimensions}"

    async def embed(self, texts: Sequence[str], context: TextContext | None = None) -> Vectors:
        """Return the vectors of `texts`, (n, dimensions), in their order; the same text is sent once.

        Raises `Denied` `label` for texts above the clearance of providers, `Permanent` `embedding_dimensions` for
        vectors of another length and `embedding_invalid` for invalid ones, and the errors of the gateway.
        """
        if context is None:
            raise Permanent(ErrorCode.INVALID, (Problem(field="context", problem="is required for an external model"),))
        sent = [_sent(text) for text in texts]
        unique = list(dict.fromkeys(sent))
        if not unique:
            return np.empty((0, self.dimensions), np.float32)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._batch(batch, context)) for batch in _batches(unique)]
        except ExceptionGroup as failures:
            expected, unexpected = failures.split(CounterpointError)
            if expected is None or unexpected is not None:
                raise
            raise _first(expected) from failures
        rows = dict(zip(unique, np.concatenate([task.result() for task in tasks]), strict=True))
        return np.stack([rows[text] for text in sent])

    async def _batch(self, texts: list[str], context: TextContext) -> Vectors:
        holder = self._tokens.of_job(context.project, context.job, context.label)
        number = 1
        while True:
            try:
                async with self._room:
                    embedded = await self._gateway.embed(
                        holder, texts, key=new_id(), deadline_s=DEADLINE_S, dimensions=self.dimensions
                    )
                return self._unit(embedded.vectors)
            except CounterpointError as error:
                if number >= TRIES or not _may_pass(error):
                    raise
                log.info("embedding.retrying", reason=str(error), number=number)
                await asyncio.sleep((isinstance(error, Transient) and error.retry_after_s) or _WAIT_S * number)
            number += 1

    def _unit(self, packed: Sequence[bytes]) -> Vectors:
        for each in packed:
            if len(each) != self.dimensions * 4:
                raise Permanent(
                    ErrorCode.EMBEDDING_DIMENSIONS,
                    (
                        Problem(
                            field="COUNTERPOINT_EMBEDDING_DIMENSIONS",
                            problem=f"{self._gateway.embedding_model} returns vectors of {len(each) // 4} dimensions,"
                            f" not {self.dimensions}",
                        ),
                    ),
                )
        vectors = np.frombuffer(b"".join(packed), "<f4").reshape(-1, self.dimensions).astype(np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all() or not lengths.all():
            raise Permanent(
                ErrorCode.EMBEDDING_INVALID,
                (Problem(field="vectors", problem="contains a zero vector or values that are not finite"),),
            )
        return np.asarray(vectors / lengths, np.float32)


def _first(failures: BaseExceptionGroup[CounterpointError]) -> CounterpointError:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _sent(text: str) -> str:
    """Return a text as it is sent: without unpaired surrogates, within the length limit, and not empty."""
    whole = text[:TEXT_CHARS].encode(errors="replace").decode()
    return whole if whole.strip() else _EMPTY


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    chars = 0
    for text in texts:
        if batch and (len(batch) >= BATCH_TEXTS or chars + len(text) > BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(text)
        chars += len(text)
    yield batch


def _may_pass(error: CounterpointError) -> bool:
    """Retry after an unknown outcome: embedding twice costs money, but has no other effect."""
    return isinstance(error, Transient) or (isinstance(error, Permanent) and error.code == ErrorCode.UNKNOWN_OUTCOME)
