"""Corpus index: a store of a project in RAM, and the search in it, in arrays as `search.sql` does. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from counterpoint.memory.embedding.model import Vectors
from counterpoint.memory.record.projects import StoreKey
from counterpoint.memory.search.bm25 import idf
from counterpoint.memory.search.candidates import Candidate, Candidates, ParsedQuery

_Floats = npt.NDArray[np.float64]
_Positions = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_ROW_BYTES = 320
"""Size of a row without its vector, in bytes, about: its numbers, id, type and names."""
_POSTING_BYTES = 22
"""Size of a posting list with one entry, in bytes."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The rows of a store, ascending, in the state `changed`.

    Arrays are (n,), `vectors` (n, dimensions), 0 where a row is not `with_vector`. Rows `known` to the model can be
    found; those that it refused by their words alone. `terms` are hashes, ascending; the rows of the nth term are
    `holders[starts[n]:starts[n + 1]]` by their position in these arrays, with the term frequencies `times`.
    """

    key: StoreKey
    changed: str
    rows: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int16]
    lengths: npt.NDArray[np.int32]
    chars: npt.NDArray[np.int32]
    ids: Sequence[str]
    types: Sequence[str]
    names: Sequence[Sequence[str]]
    known: _Flags
    with_vector: _Flags
    vectors: Vectors
    terms: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    holders: npt.NDArray[np.int32]
    times: npt.NDArray[np.int16]

    @property
    def bytes(self) -> int:
        """Return the size in RAM, in bytes, about."""
        rows, dimensions = self.vectors.shape
        return bytes_of(rows, dimensions, len(self.holders))

    def positions(self, rows: Sequence[int]) -> _Positions:
        """Return the positions of rows by id; unknown ones are left out."""
        return np.flatnonzero(np.isin(self.rows, np.asarray(rows, np.int64)))

    def postings(self, term: int) -> slice:
        """Return the range of a term in `holders` and `times`."""
        n = int(np.searchsorted(self.terms, term))
        if n == len(self.terms) or self.terms[n] != term:
            return slice(0, 0)
        return slice(int(self.starts[n]), int(self.starts[n + 1]))


def bytes_of(rows: int, dimensions: int, postings: int) -> int:
    """Return the size in RAM of a corpus, in bytes, about; it is seldom larger."""
    return rows * (4 * dimensions + _ROW_BYTES) + _POSTING_BYTES * postings


def find(
    corpora: Sequence[Corpus],
    query: ParsedQuery,
    max_label: int,
    phrase_rows: Iterable[Sequence[int]] = (),
    of_rows: Sequence[int] | None = None,
) -> Candidates:
    """Return the candidates among the rows of these corpora whose labels are at most `max_label`; with `of_rows` among
    those.

    `phrase_rows` are the rows that contain a phrase, for each phrase.
    """
    scored = [_Scored(corpus, query, _visible(corpus, max_label, of_rows)) for corpus in corpora]
    for phrase in phrase_rows:
        positions_by_corpus = [each.visible_positions(phrase) for each in scored]
        idf_of_term = idf(query.rows, sum(map(len, positions_by_corpus)))
        for each, positions in zip(scored, positions_by_corpus, strict=True):
            each.add(positions, 1, idf_of_term, named=True)
    for each in scored:
        each.add_terms(query.bring, query)
    rows = np.concatenate([corpus.rows for corpus in corpora])
    cosine = np.concatenate([each.cosine for each in scored])
    lexical = np.concatenate([each.lexical * each.visible for each in scored])
    with_vector = np.flatnonzero(np.concatenate([each.visible & each.corpus.with_vector for each in scored]))
    compared = cosine[with_vector]
    nearest = with_vector[_best(compared, rows[with_vector], query.most)]
    matching = np.flatnonzero(lexical > 0)
    matching = matching[_best(lexical[matching], rows[matching], query.most)]
    both = np.union1d(nearest, matching)
    known = np.concatenate([corpus.known for corpus in corpora])
    selected = list(zip(scored, _by_corpus(corpora, both[known[both]]), strict=True))
    for each in scored:
        each.add_terms(query.other, query)
    return Candidates(
        each=[found for each, some in selected for found in each.candidates(some)],
        nearest=len(nearest),
        lexical_sum=float(lexical.sum()),
        lexical_squares=float((lexical * lexical).sum()),
        cosine_mean=float(compared.mean(dtype=np.float64)) if len(compared) else 0.0,
        cosine_deviation=float(compared.std(dtype=np.float64)) if len(compared) else 0.0,
        vectors=np.concatenate([each.corpus.vectors[some] for each, some in selected], dtype=np.float64),
        with_vector=np.concatenate([each.corpus.with_vector[some] for each, some in selected]),
    )


class _Scored:
    """Scores of each row: its cosine, and BM25 with k1 = 1.2 and b = 0.75."""

    def __init__(self, corpus: Corpus, query: ParsedQuery, visible: _Flags) -> None:
        self.corpus, self.visible = corpus, visible
        self.lexical, self._covered_idf, self._name_idf = np.zeros((3, len(corpus.rows)))
        self._lengths: _Floats = 0.3 + corpus.lengths * np.float64(0.9 / query.mean_length)
        # Not by BLAS, whose threads would wait busily on cores that others need.
        self.cosine: Vectors = np.einsum("ij,j->i", corpus.vectors, query.vector)

    def visible_positions(self, rows: Sequence[int]) -> _Positions:
        """Return the positions of visible rows."""
        positions = self.corpus.positions(rows)
        return positions[self.visible[positions]]

    def add(self, positions: npt.NDArray[np.integer], times: npt.ArrayLike, idf_of_term: float, *, named: bool) -> None:
        """Add a term of this idf to rows that contain it this many times."""
        self.lexical[positions] += idf_of_term * np.multiply(times, 2.2) / (times + self._lengths[positions])
        self._covered_idf[positions] += idf_of_term
        if named:
            self._name_idf[positions] += idf_of_term

    def add_terms(self, terms: Mapping[str, float], query: ParsedQuery) -> None:
        """Add terms to all rows that contain them."""
        for term, idf_of_term in terms.items():
            of_term = self.corpus.postings(query.hashes[term])
            positions, times = self.corpus.holders[of_term], self.corpus.times[of_term]
            self.add(positions, times, idf_of_term, named=term in query.names)

    def candidates(self, positions: Sequence[int]) -> Iterator[Candidate]:
        """Return the candidates at some positions."""
        values = zip(
            positions,
            self.corpus.rows[positions].tolist(),
            self.corpus.chars[positions].tolist(),
            self.lexical[positions].tolist(),
            self._covered_idf[positions].tolist(),
            self._name_idf[positions].tolist(),
            strict=True,
        )
        for position, row, chars, *scores in values:
            corpus = self.corpus
            type, names = corpus.types[position], corpus.names[position]
            yield Candidate(row, *corpus.key, corpus.ids[position], type, names, chars, *scores)


def _visible(corpus: Corpus, max_label: int, of_rows: Sequence[int] | None) -> _Flags:
    visible: _Flags = corpus.labels <= max_label
    if of_rows is not None:
        visible &= np.isin(corpus.rows, np.asarray(of_rows, np.int64))
    return visible


def _best(scores: npt.NDArray[np.floating], rows: npt.NDArray[np.int64], most: int) -> _Positions:
    """Return the positions of the `most` highest scores; ties are broken by position."""
    if len(scores) <= most:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - most)[len(scores) - most]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    return np.concatenate([above, equal[np.argsort(rows[equal])[: most - len(above)]]])


def _by_corpus(corpora: Sequence[Corpus], selected: _Positions) -> list[list[int]]:
    """Return the selected rows of each corpus from positions in their concatenation."""
    ends = np.cumsum([len(corpus.rows) for corpus in corpora])
    cuts = np.split(selected, np.searchsorted(selected, ends[:-1]))
    return [(cut - end + len(corpus.rows)).tolist() for cut, end, corpus in zip(cuts, ends, corpora, strict=True)]
