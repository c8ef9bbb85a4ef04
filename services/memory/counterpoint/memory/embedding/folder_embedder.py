"""Embedder by a user's own model, in this process: the mean of its tokens, of length 1."""

import numpy as np

from counterpoint.memory.embedding.folder import Folder, LocalModel
from counterpoint.memory.embedding.model import LocalEmbedder, Vectors
from counterpoint.proto.errors import ErrorCode

MAX_DIMENSIONS = 16_000
"""Maximum number of dimensions that the record can store."""
_PROBE = "How long is a vector?"


class FolderEmbedder(LocalEmbedder):
    """Unit vectors by the model of a folder, whose dimensions are read from it at construction.

    `dimensions` is the required number, None for any. Raises `Permanent` for a model that cannot be loaded or has other
    dimensions.
    """

    def __init__(self, folder: Folder, dimensions: int | None = None, threads: int | None = None) -> None:
        super().__init__(threads)
        self._model = LocalModel(folder)
        self._by_first_token = folder.by_first_token()
        self.model_id = folder.model_id
        self.dimensions = self.vector(_PROBE).shape[0]
        if self.dimensions < 2 or self.dimensions > MAX_DIMENSIONS:
            output = "one number: a cross-encoder belongs in COUNTERPOINT_RERANKER"
            problem = output if self.dimensions < 2 else f"{self.dimensions} numbers, more than {MAX_DIMENSIONS}"
            raise folder.fault(ErrorCode.EMBEDDING_DIMENSIONS, f"{folder.path} returns for a text {problem}")
        if dimensions is not None and dimensions != self.dimensions:
            problem = f"{folder.path} returns vectors of {self.dimensions} dimensions, not {dimensions}"
            raise folder.fault(ErrorCode.EMBEDDING_DIMENSIONS, f"{problem} as in COUNTERPOINT_EMBEDDING_DIMENSIONS")

    def vector(self, text: str) -> Vectors:
        """Return the vector of a text."""
        return unit(pooled(self._model.run(self._model.encode(text)), by_first_token=self._by_first_token))


def pooled(output: Vectors, *, by_first_token: bool = False) -> Vectors:
    """Return one vector from the output of a graph: of token vectors their mean or the first, or a pooled vector as it
    is."""
    if output.ndim == 1:
        return output
    return np.asarray(output[0] if by_first_token else output.mean(axis=0), np.float32)


def unit(vector: Vectors) -> Vectors:
    """Return the vector normalised to length 1; a zero vector is unchanged."""
    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length, np.float32) if length else vector
