"""`bench retrieval`: what a search finds, on sets where it is known what answers each question.

    python tests/bench/retrieval.py DIR [--type conversation|docs|code|runbook] [--k 10] [--json] [--fit FILE]

DIR is a set in the layout of `sets.py`, or a folder of such sets and of original files. Each group of a set is a
project of its own on a throw-away stack; its texts go in through memory's ingest, its questions through memory's
queries. A passage counts for the text it came from. `--fit` writes a
calibration whose grader is fitted to what was found.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.fit import Graded, fit
from bench.measure import quiet_logs, say, stop_when_told
from bench.ranking import auroc, ndcg, recall
from bench.sets import Group, Query, Set, Unreadable, found
from bench.small import Small, small

from counterpoint import bus
from counterpoint.developer.relevance import calibration, hits
from counterpoint.memory.retrieval.chunk import chunk
from counterpoint.proto.conversation import TURN, Turn, transcript
from counterpoint.proto.ingest import ContentType, Document, Ingested
from counterpoint.proto.memory import HybridSearch, Item
from counterpoint.recall import Memory

TYPES: dict[str, ContentType | None] = {
    "conversation": "conversation", "docs": "text", "code": "python", "runbook": "markdown",
}  # fmt: skip
PRINCIPAL = "administrator"
DEEP = 60
"""Passages asked for, of which several may be of one text."""
TIMED = 300
BATCH, AT_ONCE = 20, 4
GRADED = 10
"""So many passages of each question are what the grader is measured on."""
LEGS = {"fusion": None, "lexical": 0.0, "dense": 1.0}


@dataclass
class Result:
    """What was measured of one set."""

    name: str
    type: str
    groups: int
    documents: int = 0
    chunks: int = 0
    refused: list[str] = field(default_factory=list)
    ingest_s: float = 0.0
    ranked: dict[str, list[tuple[Query, list[str]]]] = field(default_factory=lambda: {leg: [] for leg in LEGS})
    graded: list[Graded] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)
    asked_s: float = 0.0

    def scores(self, leg: str, k: int, category: str | None = None) -> dict[str, float]:
        """The measures of a leg, over all questions or those of a category."""
        of = [pair for pair in self.ranked[leg] if category in (None, pair[0].category)]
        named: dict[str, Callable[[Query, list[str]], float]] = {
            f"ndcg@{k}": lambda query, ranked: ndcg(ranked, query.relevant, k),
            **{f"recall@{n}": _recall_at(n) for n in sorted({5, 10, 20, k})},
        }
        return {name: round(statistics.fmean(measure(*pair) for pair in of), 4) for name, measure in named.items()}

    def as_json(self, k: int) -> dict[str, Any]:
        """All of it; the fusion at the top."""
        categories = sorted({query.category for query, _ in self.ranked["fusion"] if query.category is not None})
        curve = calibration().answer
        area = auroc([curve.at(each.signs) for each in self.graded], [each.true for each in self.graded])
        took = sorted(self.took_ms)
        return {
            "set": self.name,
            "type": self.type,
            **self.scores("fusion", k),
            "lexical": self.scores("lexical", k),
            "dense": self.scores("dense", k),
            "by_category": {each: self.scores("fusion", k, each) for each in categories},
            "grader_auroc": None if area is None else round(area, 4),
            "queries_per_s": round(len(self.ranked["fusion"]) / self.asked_s, 1),
            "p50_ms": round(statistics.median(took), 2),
            "p95_ms": round(took[int(len(took) * 0.95)], 2),
            "ingest_chunks_per_s": round(self.chunks / self.ingest_s, 1),
            "groups": self.groups,
            "documents": self.documents,
            "chunks": self.chunks,
            "queries": len(self.ranked["fusion"]),
            "refused": self.refused,
        }


def _recall_at(n: int) -> Callable[[Query, list[str]], float]:
    return lambda query, ranked: recall(ranked, query.relevant, n)


class Corpus:
    """A group as documents, and which text a passage of them came from."""

    def __init__(self, group: Group, type: str) -> None:
        self.documents: list[Document] = []
        self._ids: dict[str, list[str]] = {}
        if type == "conversation":
            self._conversation(group)
        else:
            self._texts(group, type)

    def of(self, item: Item) -> str:
        """The `_id` that a passage counts for."""
        return self.owner(item.body["source"], item.id)

    def owner(self, source: str, chunk_id: str) -> str:
        """The same, of a passage by its source and id."""
        ids = self._ids[source]
        return ids[0] if len(ids) == 1 else ids[int(chunk_id.rpartition("-")[2])]

    def text(self, source: str) -> str:
        """What was handed in under a source."""
        return next(document.text for document in self.documents if document.source == source)

    def _texts(self, group: Group, type: str) -> None:
        for n, text in enumerate(group.texts):
            source = f"text/{n}"
            self._ids[source] = [text.id]
            self.documents.append(
                Document(source=source, text=text.text, title=text.title[:500] or None, type=TYPES[type])
            )

    def _conversation(self, group: Group) -> None:
        """One document; its passages follow one another as its turns do."""
        said = transcript(Turn(text.speaker or "", text.text, text.at) for text in group.texts)
        heads = [head.start() for head in TURN.finditer(said)]
        owners, turn = [], 0
        for piece in chunk(said, "conversation").chunks:
            while turn + 1 < len(heads) and heads[turn + 1] <= piece.start:
                turn += 1
            owners.append(group.texts[turn].id)
        self._ids["conversation"] = owners
        self.documents.append(Document(source="conversation", text=said, type="conversation"))


async def measured(place: Small, name: str, of: Set, type: str) -> Result:
    """One set."""
    result = Result(of.name, type, len(of.groups))
    for n, group in enumerate(of.groups):
        say(f"{of.name}: group {n + 1} of {len(of.groups)}, {len(group.texts)} texts, {len(group.queries)} questions")
        memory = place.router.memory(f"{name}-{n}", PRINCIPAL)
        corpus = Corpus(group, type)
        began = time.perf_counter()
        for became in await _ingested(memory, corpus.documents):
            result.documents += 1
            result.chunks += became.chunks
            if became.status not in ("added", "replaced"):
                result.refused.append(f"{corpus.documents[result.documents - 1].source}: {became.problem}")
        result.ingest_s += time.perf_counter() - began
        await _asked(place, f"{name}-{n}", group, corpus, result)
    return result


async def _ingested(memory: Memory, documents: Sequence[Document]) -> list[Ingested]:
    """What became of each, in order; some requests under way at once."""
    batches = [documents[n : n + BATCH] for n in range(0, len(documents), BATCH)]
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(batch: Sequence[Document]) -> tuple[Ingested, ...]:
        async with turn:
            return await memory.ingest(batch, timeout_s=600)

    return [became for batch in await asyncio.gather(*map(one, batches)) for became in batch]


async def _asked(place: Small, project: str, group: Group, corpus: Corpus, result: Result) -> None:
    """First each question alone, for the time it takes; then all legs, deep enough to rank texts."""
    for query in group.queries[: max(0, TIMED - len(result.took_ms))]:
        memory = place.router.memory(project, PRINCIPAL)
        began = time.perf_counter()
        await memory.query(HybridSearch(store="chunks", text=query.text))
        result.took_ms.append((time.perf_counter() - began) * 1000)
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(query: Query, leg: str) -> None:
        async with turn:
            memory = place.router.memory(project, PRINCIPAL)
            asked = HybridSearch(store="chunks", text=query.text, k=DEEP, vector_weight=LEGS[leg])
            (answer,) = await memory.query(asked, timeout_s=60)
        ranked = list(dict.fromkeys(map(corpus.of, answer.items)))
        result.ranked[leg].append((query, ranked))
        if leg == "fusion":
            graded = hits(query.text, answer.items[:GRADED], calibration().answer)
            result.graded += [
                Graded(result.name, query.id, hit.signs, corpus.of(hit.item) in query.relevant) for hit in graded
            ]

    for leg in LEGS:
        began = time.perf_counter()
        await asyncio.gather(*(one(query, leg) for query in group.queries))
        if leg == "fusion":
            result.asked_s += time.perf_counter() - began


def type_of(of: Set) -> str:
    """What the texts of a set are, where nobody says it."""
    if of.spoken:
        return "conversation"
    texts = [text.text for group in of.groups for text in group.texts[:50]]
    code = sum("def " in text or "function" in text or "=>" in text or "class " in text for text in texts)
    return "code" if code > len(texts) / 2 else "docs"


def shown(result: dict[str, Any], k: int) -> str:
    """A set for people."""
    head = [f"ndcg@{k}", *(f"recall@{n}" for n in sorted({5, 10, 20, k}))]
    rows = [("fusion", result), ("lexical", result["lexical"]), ("dense", result["dense"])]
    rows += [(f"  category {each}", scores) for each, scores in result["by_category"].items()]
    lines = [
        f"\n{result['set']} ({result['type']}): {result['queries']} questions, {result['documents']} documents, "
        f"{result['chunks']} passages, {result['groups']} groups",
        f"  {'':16}" + "".join(f"{name:>12}" for name in head),
        *(f"  {name:16}" + "".join(f"{scores[each]:12.4f}" for each in head) for name, scores in rows),
        f"  grader AUROC {result['grader_auroc']}; {result['queries_per_s']} queries/s, "
        f"p50 {result['p50_ms']} ms, p95 {result['p95_ms']} ms; ingest {result['ingest_chunks_per_s']} passages/s",
    ]
    if result["refused"]:
        lines.append(f"  not searched: {len(result['refused'])} documents, the first {result['refused'][0]}")
    return "\n".join(lines)


async def run(folder: Path, given: argparse.Namespace) -> list[Result]:
    """All sets in a folder, on one throw-away stack."""
    sets = list(found(given.folder, folder / "converted"))
    async with small(folder / "stack") as place:
        return [await measured(place, f"set{n}", each, given.type or type_of(each)) for n, each in enumerate(sets)]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--type", choices=TYPES)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fit", type=Path, metavar="FILE")
    given = parser.parse_args()
    if not 1 <= given.k <= 20:
        parser.error("--k is between 1 and 20")
    quiet_logs()
    stop_when_told()
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        try:
            measured_ = bus.run(run(Path(folder), given))
        except Unreadable as unreadable:
            sys.exit(f"bench retrieval: {unreadable}")
    if given.fit is not None:
        passages = [each for result in measured_ for each in result.graded]
        sets = ", ".join(f"{result.name} ({len(result.ranked['fusion'])} questions)" for result in measured_)
        made_of = f"{len(passages)} passages, the {GRADED} best of each question of {sets}"
        fitted = calibration().model_copy(update={"answer": fit(passages, made_of)})
        given.fit.write_text(fitted.model_dump_json(indent=2) + "\n")
    results = [result.as_json(given.k) for result in measured_]
    if given.json:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
        whole = results[0] if len(results) == 1 else {"sets": results}
        print(json.dumps({**whole, "machine": machine}))
    else:
        print("\n".join(shown(result, given.k) for result in results))


if __name__ == "__main__":
    main()
