"""Embedding models: the interface, and the built-in all-MiniLM-L6-v2 by onnxruntime."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from counterpoint.memory.embedding.files import MODEL_ID, load_tokenizer, model_file

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

DIMENSIONS = 384
MAX_TOKENS = 256
# More than one ingest takes at once, so that the one text of a query does not wait behind it: the system shares the
# cores.
WORKERS = 24

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TextContext:
    """Context of texts: their project, their highest label, and the job that pays for a remote model; a built-in
    model ignores `label` and `job`."""

    project: str
    label: int = 0
    job: str = "embedding"


class EmbeddingModel(Protocol):
    """Embeds texts as unit vectors of `dimensions` float32. Vectors of two `model_id`s are never compared."""

    @property
    def model_id(self) -> str:
        """Identifier of its vectors."""

    @property
    def dimensions(self) -> int:
        """Dimensions of its vectors."""

    @property
    def is_remote(self) -> bool:
        """Whether a remote service receives the texts."""

    async def embed(self, texts: Sequence[str], context: TextContext | None = None) -> Vectors:
        """Return the vectors of `texts`, (n, dimensions), in their order; the loop stays free.

        `context` is the context for a remote model. Raises `Transient`, `Denied` and `Permanent`.
        """


class LocalEmbedder(ABC):
    """Embeds texts in threads of this process. A text's vector depends on nothing but the text: it is the same alone
    and among others."""

    model_id: str
    dimensions: int
    is_remote = False

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1
        self._workers = ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="embed")

    @abstractmethod
    def vector(self, text: str) -> Vectors:
        """Return the unit vector of a text, in a thread."""

    async def embed(self, texts: Sequence[str], context: TextContext | None = None) -> Vectors:
        """Return the vectors of `texts`, (n, dimensions), in their order; the loop stays free."""
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        # Texts of similar length go to different threads, so that all finish together.
        shares = [share for n in range(self._threads) if (share := by_length[n :: self._threads])]
        await asyncio.gather(*(self._in_thread(self._fill, vectors, texts, share) for share in shares))
        return vectors

    def close(self) -> None:
        """Stop the threads after the texts that they work on."""
        self._workers.shutdown()

    def _fill(self, vectors: Vectors, texts: Sequence[str], share: list[int]) -> None:
        for i in share:
            vectors[i] = self.vector(texts[i])

    async def _in_thread(self, function: Callable[..., object], *args: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._workers, function, *args)


class Embedder(LocalEmbedder):
    """Embeds texts as unit vectors of 384 float32; the model is loaded at the first use, or by `load`. Only the first
    256 tokens of a text count."""

    dimensions = DIMENSIONS

    def __init__(self, cache_dir: Path, threads: int | None = None, model: str = MODEL_ID) -> None:
        super().__init__(threads)
        self.model_id = model
        self._cache_dir = cache_dir
        self._loading = Lock()

    async def load(self) -> None:
        """Load the model now; build it if it is not cached. Raises `Permanent` as `model_file` does."""
        await self._in_thread(self._load)

    def vector(self, text: str) -> Vectors:
        """Return the vector of a text; load the model at the first one."""
        tokenizer, session = self._load()
        # An unpaired surrogate is legal in a Python string and in JSON, but it is not a character.
        ids = np.array([tokenizer.encode(text.encode(errors="replace").decode()).ids], np.int64)
        return np.asarray(session.run(["vector"], {"ids": ids})[0][0], np.float32)

    def _load(self) -> "tuple[Tokenizer, InferenceSession]":
        with self._loading:
            return self._loaded

    @cached_property
    def _loaded(self) -> "tuple[Tokenizer, InferenceSession]":
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(load_tokenizer())
        tokenizer.no_padding()
        tokenizer.enable_truncation(MAX_TOKENS)
        options = SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_mem_pattern = False
        # By path: the session would keep the bytes of a model for its whole life.
        path = model_file(self._cache_dir, self.model_id)
        session = InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return tokenizer, session
