"""`counterpoint bench retrieval`: quality and time of searches, on sets with known answers.

    python -m counterpoint.bench.retrieval DIR [--type conversation|docs|code|runbook] [--k 10] [--json] [--fit FILE]

DIR is a set in the layout of `evaluation_sets`, or a folder of such sets and of original files. Each group of a set is
a project of its own on a temporary stack. Its texts go through the ingest of memory, its questions through its queries.
A passage counts for the text that it comes from. `--fit` writes a calibration with a grader fitted to the passages
found."""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterpoint import bus
from counterpoint.bench.bench_stack import bench_stack
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.evaluation_metrics import auroc, ndcg, recall
from counterpoint.bench.evaluation_sets import EvaluationSet, SetQuery, TextGroup, read_sets
from counterpoint.bench.relevance_fit import GradedPassage, fit_curve
from counterpoint.bench.report import machine_facts, progress
from counterpoint.bus import Service
from counterpoint.client import Memory
from counterpoint.developer.evidence.calibration import Calibration, load_calibration
from counterpoint.developer.excerpts.relevance import hits
from counterpoint.memory.ingest.chunk import chunk
from counterpoint.proto.conversation import TURN, Turn, transcript
from counterpoint.proto.ingest import ContentType, Document, DocumentResult
from counterpoint.proto.memory import HybridSearch, Item

TYPES: dict[str, ContentType | None] = {
    "conversation": "conversation", "docs": "text", "code": "python", "runbook": "markdown",
}  # fmt: skip
PRINCIPAL = "administrator"
DEEP = 60
"""Passages per search; several may be of one text."""
TIMED = 300
BATCH, AT_ONCE = 20, 4
GRADED = 10
"""Passages per question on which the grader is measured."""
LEGS = {"fusion": None, "lexical": 0.0, "dense": 1.0}


@dataclass
class RetrievalResult:
    """Measurements of one set."""

    name: str
    type: str
    groups: int
    documents: int = 0
    chunks: int = 0
    refused: list[str] = field(default_factory=list)
    ingest_s: float = 0.0
    ranked: dict[str, list[tuple[SetQuery, list[str]]]] = field(default_factory=lambda: {leg: [] for leg in LEGS})
    graded: list[GradedPassage] = field(default_factory=list)
    durations_ms: list[float] = field(default_factory=list)
    queries_s: float = 0.0

    def scores(self, leg: str, k: int, category: str | None = None) -> dict[str, float]:
        """Return the quality of a leg, over all questions or those of a category."""
        pairs = [pair for pair in self.ranked[leg] if category in (None, pair[0].category)]
        metrics: dict[str, Callable[[SetQuery, list[str]], float]] = {
            f"ndcg@{k}": lambda query, ranked: ndcg(ranked, query.relevant, k),
            **{f"recall@{n}": _recall_at(n) for n in sorted({5, 10, 20, k})},
        }
        return {name: round(statistics.fmean(measure(*pair) for pair in pairs), 4) for name, measure in metrics.items()}

    def as_json(self, k: int) -> dict[str, Any]:
        """Return all figures, with those of the fusion at the top level."""
        categories = sorted({query.category for query, _ in self.ranked["fusion"] if query.category is not None})
        curve = load_calibration().answer
        area = auroc(
            [curve.probability(each.features) for each in self.graded], [each.relevant for each in self.graded]
        )
        took = sorted(self.durations_ms)
        return {
            "set": self.name,
            "type": self.type,
            **self.scores("fusion", k),
            "lexical": self.scores("lexical", k),
            "dense": self.scores("dense", k),
            "by_category": {each: self.scores("fusion", k, each) for each in categories},
            "grader_auroc": None if area is None else round(area, 4),
            "queries_per_s": round(len(self.ranked["fusion"]) / self.queries_s, 1),
            "p50_ms": round(statistics.median(took), 2),
            "p95_ms": round(took[int(len(took) * 0.95)], 2),
            "ingest_chunks_per_s": round(self.chunks / self.ingest_s, 1),
            "groups": self.groups,
            "documents": self.documents,
            "chunks": self.chunks,
            "queries": len(self.ranked["fusion"]),
            "refused": self.refused,
        }


def _recall_at(n: int) -> Callable[[SetQuery, list[str]], float]:
    return lambda query, ranked: recall(ranked, query.relevant, n)


class EvaluationCorpus:
    """Group as documents, with the text that each passage comes from."""

    def __init__(self, group: TextGroup, type: str) -> None:
        self.documents: list[Document] = []
        self._ids: dict[str, list[str]] = {}
        if type == "conversation":
            self._conversation(group)
        else:
            self._texts(group, type)

    def text_id(self, item: Item) -> str:
        """Return the `_id` of the text of a passage."""
        return self.owner(item.body["source"], item.id)

    def owner(self, source: str, chunk_id: str) -> str:
        """Return the `_id` of the text of a passage, by source and chunk id."""
        ids = self._ids[source]
        return ids[0] if len(ids) == 1 else ids[int(chunk_id.rpartition("-")[2])]

    def text(self, source: str) -> str:
        """Return the text ingested under a source."""
        return next(document.text for document in self.documents if document.source == source)

    def _texts(self, group: TextGroup, type: str) -> None:
        for n, text in enumerate(group.texts):
            source = f"text/{n}"
            self._ids[source] = [text.id]
            self.documents.append(
                Document(source=source, text=text.text, title=text.title[:500] or None, type=TYPES[type])
            )

    def _conversation(self, group: TextGroup) -> None:
        """Add one document; its passages have the order of its turns."""
        text_of_turns = transcript(Turn(text.speaker or "", text.text, text.at) for text in group.texts)
        heads = [head.start() for head in TURN.finditer(text_of_turns)]
        owners, turn = [], 0
        for piece in chunk(text_of_turns, "conversation").chunks:
            while turn + 1 < len(heads) and heads[turn + 1] <= piece.start:
                turn += 1
            owners.append(group.texts[turn].id)
        self._ids["conversation"] = owners
        self.documents.append(Document(source="conversation", text=text_of_turns, type="conversation"))


async def measure_set(router: Service, name: str, data: EvaluationSet, type: str) -> RetrievalResult:
    """Measure one set."""
    result = RetrievalResult(data.name, type, len(data.groups))
    for n, group in enumerate(data.groups):
        size = f"{len(group.texts)} texts, {len(group.queries)} questions"
        progress(f"{data.name}: group {n + 1} of {len(data.groups)}, {size}")
        memory = router.memory(f"{name}-{n}", PRINCIPAL)
        corpus = EvaluationCorpus(group, type)
        began = time.perf_counter()
        for document in await _ingest(memory, corpus.documents):
            result.documents += 1
            result.chunks += document.chunks
            if document.status not in ("added", "replaced"):
                result.refused.append(f"{corpus.documents[result.documents - 1].source}: {document.problem}")
        result.ingest_s += time.perf_counter() - began
        await _run_queries(router, f"{name}-{n}", group, corpus, result)
    return result


async def _ingest(memory: Memory, documents: Sequence[Document]) -> list[DocumentResult]:
    """Ingest documents with `AT_ONCE` requests at a time; return their results in order."""
    batches = [documents[n : n + BATCH] for n in range(0, len(documents), BATCH)]
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(batch: Sequence[Document]) -> tuple[DocumentResult, ...]:
        async with slots:
            return await memory.ingest(batch, timeout_s=600)

    return [document for batch in await asyncio.gather(*map(one, batches)) for document in batch]


async def _run_queries(
    router: Service, project: str, group: TextGroup, corpus: EvaluationCorpus, result: RetrievalResult
) -> None:
    """Time single questions, then run all legs with enough passages to rank texts."""
    for query in group.queries[: max(0, TIMED - len(result.durations_ms))]:
        memory = router.memory(project, PRINCIPAL)
        began = time.perf_counter()
        await memory.query(HybridSearch(store="chunks", text=query.text))
        result.durations_ms.append((time.perf_counter() - began) * 1000)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(query: SetQuery, leg: str) -> None:
        async with slots:
            memory = router.memory(project, PRINCIPAL)
            query_of_leg = HybridSearch(store="chunks", text=query.text, k=DEEP, vector_weight=LEGS[leg])
            (answer,) = await memory.query(query_of_leg, timeout_s=60)
        ranked = list(dict.fromkeys(map(corpus.text_id, answer.items)))
        result.ranked[leg].append((query, ranked))
        if leg == "fusion":
            graded = hits(query.text, answer.items[:GRADED], load_calibration().answer)
            result.graded += [
                GradedPassage(result.name, query.id, hit.features, corpus.text_id(hit.item) in query.relevant)
                for hit in graded
            ]

    for leg in LEGS:
        began = time.perf_counter()
        await asyncio.gather(*(one(query, leg) for query in group.queries))
        if leg == "fusion":
            result.queries_s += time.perf_counter() - began


def content_type_of(data: EvaluationSet) -> str:
    """Guess the type of the texts of a set."""
    if data.spoken:
        return "conversation"
    texts = [text.text for group in data.groups for text in group.texts[:50]]
    code = sum("def " in text or "function" in text or "=>" in text or "class " in text for text in texts)
    return "code" if code > len(texts) / 2 else "docs"


def format_result(result: dict[str, Any], k: int) -> str:
    """Return the result of a set as text."""
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
        lines.append(f"  not ingested: {len(result['refused'])} documents, the first {result['refused'][0]}")
    return "\n".join(lines)


def fitted_calibration(results: Sequence[RetrievalResult]) -> Calibration:
    """Return the calibration with a grader fitted to the graded passages. Raises `ValueError`."""
    passages = [each for result in results for each in result.graded]
    sets = ", ".join(f"{result.name} ({len(result.ranked['fusion'])} questions)" for result in results)
    fitted_on = f"{len(passages)} passages, the {GRADED} best of each question of {sets}"
    return load_calibration().model_copy(update={"answer": fit_curve(passages, fitted_on)})


async def run(folder: Path, args: argparse.Namespace) -> list[RetrievalResult]:
    """Measure all sets of a folder on one temporary stack."""
    sets = list(read_sets(args.folder, folder / "converted"))
    async with bench_stack(folder / "stack") as bench:
        return [
            await measure_set(bench.router, f"set{n}", each, args.type or content_type_of(each))
            for n, each in enumerate(sets)
        ]


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--type", choices=TYPES)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--fit", type=Path, metavar="FILE")
    args = parser.parse_args()
    if not 1 <= args.k <= 20:
        parser.error("--k must be between 1 and 20")
    with bench_folder("retrieval") as folder:
        measured = bus.run(run(folder, args))
    if args.fit is not None:
        args.fit.write_text(fitted_calibration(measured).model_dump_json(indent=2) + "\n")
    results = [result.as_json(args.k) for result in measured]
    if args.json:
        output = results[0] if len(results) == 1 else {"sets": results}
        print(json.dumps({**output, "machine": machine_facts()}))
    else:
        print("\n".join(format_result(result, args.k) for result in results))


if __name__ == "__main__":
    main()
