"""Corpus index: a store of a project in RAM, and the search in it, in arrays as `search.sql` does. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from counterpoint.memory.embedding.model import Vectors
from counterpoint.memory.search.bm25 import idf
from counterpoint.memory.search.candidates import Candidate, Candidates, ParsedQuery

Place = tuple[str, str]
"""Project and store."""
_Floats = npt.NDArray[np.float64]
_Places = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_ROW_BYTES = 320
"""Size of a row without its vector, in bytes, about: its numbers, id, type and names."""
_POSTING_BYTES = 22
"""Size of a posting list with one entry, in bytes."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The rows of a store, ascending, in the state `changed`.

    Arrays are (n,), `vectors` (n, dimensions), 0 where a row is not `meant`. Rows `known` to the model can be found;
    those that it refused by their words alone. `terms` are hashes, ascending; the rows of the nth term are
    `holders[starts[n]:starts[n + 1]]` by their position in these arrays, with the term frequencies `times`.
    """

    place: Place
    changed: str
    rows: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int16]
    lengths: npt.NDArray[np.int32]
    chars: npt.NDArray[np.int32]
    ids: Sequence[str]
    types: Sequence[str]
    names: Sequence[Sequence[str]]
    known: _Flags
    meant: _Flags
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

    def places(self, rows: Sequence[int]) -> _Places:
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
    wanted: ParsedQuery,
    max_label: int,
    spoken: Iterable[Sequence[int]] = (),
    of_rows: Sequence[int] | None = None,
) -> Candidates:
    """Return the candidates among the rows of these corpora whose labels are at most `max_label`; with `of_rows` among
    those.

    `spoken` are the rows that contain a phrase, for each phrase.
    """
    scored = [_Scored(corpus, wanted, _seen(corpus, max_label, of_rows)) for corpus in corpora]
    for phrase in spoken:
        holding = [each.seen_of(phrase) for each in scored]
        worth = idf(wanted.rows, sum(map(len, holding)))
        for each, places in zip(scored, holding, strict=True):
            each.add(places, 1, worth, named=True)
    for each in scored:
        each.add_terms(wanted.bring, wanted)
    rows = np.concatenate([corpus.rows for corpus in corpora])
    cosine = np.concatenate([each.cosine for each in scored])
    brought = np.concatenate([each.lexical * each.seen for each in scored])
    meant = np.flatnonzero(np.concatenate([each.seen & each.corpus.meant for each in scored]))
    compared = cosine[meant]
    nearest = meant[_best(compared, rows[meant], wanted.most)]
    matching = np.flatnonzero(brought > 0)
    matching = matching[_best(brought[matching], rows[matching], wanted.most)]
    both = np.union1d(nearest, matching)
    known = np.concatenate([corpus.known for corpus in corpora])
    chosen = _apart(corpora, both[known[both]])
    for each in scored:
        each.add_terms(wanted.other, wanted)
    return Candidates(
        each=[found for each, some in zip(scored, chosen, strict=True) for found in each.candidates(some)],
        nearest=len(nearest),
        lexical_sum=float(brought.sum()),
        lexical_squares=float((brought * brought).sum()),
        cosine_mean=float(compared.mean(dtype=np.float64)) if len(compared) else 0.0,
        cosine_deviation=float(compared.std(dtype=np.float64)) if len(compared) else 0.0,
        vectors={
            int(corpus.rows[place]): corpus.vectors[place]
            for corpus, some in zip(corpora, chosen, strict=True)
            for place in some
            if corpus.meant[place]
        },
    )


class _Scored:
    """Scores of each row: its cosine, and BM25 with k1 = 1.2 and b = 0.75."""

    def __init__(self, corpus: Corpus, wanted: ParsedQuery, seen: _Flags) -> None:
        self.corpus, self.seen = corpus, seen
        self.lexical, self._covered, self._named = np.zeros((3, len(corpus.rows)))
        self._lengths: _Floats = 0.3 + corpus.lengths * np.float64(0.9 / wanted.mean_length)
        # Not by BLAS, whose threads would wait busily on cores that others need.
        self.cosine: Vectors = np.einsum("ij,j->i", corpus.vectors, wanted.vector)

    def seen_of(self, rows: Sequence[int]) -> _Places:
        """Return the positions of visible rows."""
        places = self.corpus.places(rows)
        return places[self.seen[places]]

    def add(self, places: npt.NDArray[np.integer], times: npt.ArrayLike, worth: float, *, named: bool) -> None:
        """Add a term of this idf to rows that contain it this many times."""
        self.lexical[places] += worth * np.multiply(times, 2.2) / (times + self._lengths[places])
        self._covered[places] += worth
        if named:
            self._named[places] += worth

    def add_terms(self, terms: Mapping[str, float], wanted: ParsedQuery) -> None:
        """Add terms to all rows that contain them."""
        for term, worth in terms.items():
            of_term = self.corpus.postings(wanted.hashes[term])
            places, times = self.corpus.holders[of_term], self.corpus.times[of_term]
            self.add(places, times, worth, named=term in wanted.names)

    def candidates(self, places: Sequence[int]) -> Iterator[Candidate]:
        """Return the candidates at some positions."""
        values = zip(
            places,
            self.corpus.rows[places].tolist(),
            self.corpus.chars[places].tolist(),
            self.lexical[places].tolist(),
            self._covered[places].tolist(),
            self._named[places].tolist(),
            strict=True,
        )
        for place, row, chars, *signs in values:
            corpus = self.corpus
            type, names = corpus.types[place], corpus.names[place]
            yield Candidate(row, *corpus.place, corpus.ids[place], type, names, chars, *signs)


def _seen(corpus: Corpus, max_label: int, of_rows: Sequence[int] | None) -> _Flags:
    seen: _Flags = corpus.labels <= max_label
    if of_rows is not None:
        seen &= np.isin(corpus.rows, np.asarray(of_rows, np.int64))
    return seen


def _best(scores: npt.NDArray[np.floating], rows: npt.NDArray[np.int64], most: int) -> _Places:
    """Return the positions of the `most` highest scores; ties are broken by position."""
    if len(scores) <= most:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - most)[len(scores) - most]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    return np.concatenate([above, equal[np.argsort(rows[equal])[: most - len(above)]]])


def _apart(corpora: Sequence[Corpus], chosen: _Places) -> list[list[int]]:
    """Return the selected rows of each corpus from positions in their concatenation."""
    ends = np.cumsum([len(corpus.rows) for corpus in corpora])
    cuts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    return [(cut - end + len(corpus.rows)).tolist() for cut, end, corpus in zip(cuts, ends, corpora, strict=True)]
