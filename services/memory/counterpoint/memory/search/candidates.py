"""Search requests, and the rows that are candidates for their results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from counterpoint.memory.embedding.model import Vectors

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SearchScope:
    """Visibility of a search: a project and the shared one, stores, vectors of one model, and a maximum label."""

    project: str
    stores: tuple[str, ...]
    model: str
    max_label: int


@dataclass(frozen=True)
class ParsedQuery:
    """Parsed search. `vector` of the text, (dimensions,); `bring` are the terms whose rows become candidates and
    `other` those that only score, each with its idf; `hashes` are those of both; `phrases` are tsqueries, each with its
    rarest word; `names` are terms that name one thing. The corpus has `rows` rows of `mean_length` terms; each leg
    brings `most` candidates."""

    vector: Vectors
    bring: Mapping[str, float]
    other: Mapping[str, float]
    hashes: Mapping[str, int]
    phrases: Sequence[tuple[str, str]]
    names: Sequence[str]
    most: int
    rows: int
    mean_length: float


class Candidate(NamedTuple):
    """A row that one of the legs found, and its lexical score."""

    row: int
    project: str
    store: str
    id: str
    type: str
    names: Sequence[str]
    chars: int
    lexical: float
    covered: float
    named: float


@dataclass(frozen=True)
class Candidates:
    """The rows that both legs found. `nearest` is the number found by the dense leg; `lexical_sum` and
    `lexical_squares` are over the BM25 scores of all rows, `cosine_mean` and `cosine_deviation` over all cosines.

    `vectors` are those of the rows, (rows, dimensions) in 64 bits, so that sums do not depend on their source; 0 for a
    row that is not `with_vector`.
    """

    each: Sequence[Candidate] = ()
    nearest: int = 0
    lexical_sum: float = 0.0
    lexical_squares: float = 0.0
    cosine_mean: float = 0.0
    cosine_deviation: float = 0.0
    vectors: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    with_vector: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def likeness(self, vector: Vectors | Floats) -> list[float]:
        """Return the inner product of each row's vector with this one, 0 without one."""
        products = np.einsum("ij,j->i", self.vectors, vector.astype(np.float64))
        found: list[float] = np.where(self.with_vector, products, 0.0).tolist()
        return found

    def middle(self, positions: Sequence[int]) -> Floats:
        """Return the mean of the vectors of some rows, 0 if none has one."""
        some = [n for n in positions if self.with_vector[n]]
        return np.mean(self.vectors[some], axis=0) if some else np.zeros(self.vectors.shape[1])
