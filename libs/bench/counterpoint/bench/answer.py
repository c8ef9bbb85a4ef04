"""`counterpoint bench answer`: evidence that the answers to questions cite, on sets with known answers.

    python -m counterpoint.bench.answer DIR [--type conversation|docs|code|runbook] [--json]

DIR is a folder as for `counterpoint bench retrieval`. Each group of a set is a project of a temporary stack of all five
services. Its texts are ingested over HTTP, its questions are tasks. A citation counts for the text that it comes from.
"""

import argparse
import asyncio
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from counterpoint import bus
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.evaluation_sets import EvaluationSet, SetQuery, TextGroup, read_sets
from counterpoint.bench.report import machine_facts, progress
from counterpoint.bench.retrieval import TYPES, EvaluationCorpus, content_type_of
from counterpoint.bench.temporary_stack import temporary_stack

CITATIONS = 3
"""Citations per answer that are compared with the evidence."""
BATCH, AT_ONCE, WAIT_S = 20, 4, 60


@dataclass
class AnswerFigures:
    """Results of the questions of one set."""

    name: str
    type: str
    groups: int
    endings: Counter[str] = field(default_factory=Counter)
    cited: list[tuple[SetQuery, bool]] = field(default_factory=list)
    candidates_cited: int = 0
    spans: int = 0
    resolved: int = 0
    rewritten: int = 0
    durations_ms: list[int] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        count = len(self.cited)
        categories = sorted({query.category for query, _ in self.cited if query.category is not None})
        return {
            "set": self.name,
            "type": self.type,
            "questions": count,
            "answers_cite_evidence": _share(sum(cited for _, cited in self.cited), count),
            "answers_or_candidates_cite_evidence": _share(
                sum(cited for _, cited in self.cited) + self.candidates_cited, count
            ),
            "by_category": {
                each: _share(
                    sum(cited for query, cited in self.cited if query.category == each),
                    sum(query.category == each for query, _ in self.cited),
                )
                for each in categories
            },
            "cited_spans": self.spans,
            "cited_spans_resolve": _share(self.resolved, self.spans),
            "resolved_without_fallback": _share(self.endings["answered"], count),
            "put_in_other_words": _share(self.rewritten, count),
            "endings": dict(self.endings),
            "groups": self.groups,
            "p50_ms": statistics.median(self.durations_ms) if self.durations_ms else None,
        }


def _share(part: int, total: int) -> float | None:
    return round(part / total, 4) if total else None


async def measure_set(http: httpx.AsyncClient, name: str, data: EvaluationSet, type: str) -> AnswerFigures:
    """Measure one set."""
    result = AnswerFigures(data.name, type, len(data.groups))
    for n, group in enumerate(data.groups):
        size = f"{len(group.texts)} texts, {len(group.queries)} questions"
        progress(f"{data.name}: group {n + 1} of {len(data.groups)}, {size}")
        corpus = EvaluationCorpus(group, type)
        await _ingest(http, f"{name}-{n}", corpus)
        await _ask(http, f"{name}-{n}", group, corpus, result)
    return result


async def _ingest(http: httpx.AsyncClient, project: str, corpus: EvaluationCorpus) -> None:
    documents = [
        document.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        for document in corpus.documents
        if (document.text or "").strip()
    ]
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(batch: Sequence[dict[str, Any]]) -> None:
        async with slots:
            answer = await http.post("/v1/documents", params={"project": project}, json={"documents": batch})
            answer.raise_for_status()

    await asyncio.gather(*(one(documents[n : n + BATCH]) for n in range(0, len(documents), BATCH)))


async def _ask(
    http: httpx.AsyncClient, project: str, group: TextGroup, corpus: EvaluationCorpus, result: AnswerFigures
) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(query: SetQuery) -> None:
        async with slots:
            began = asyncio.get_running_loop().time()
            answer = await http.post(
                "/v1/tasks",
                params={"project": project},
                headers={"Prefer": f"wait={WAIT_S}"},
                json={"kind": "question", "description": query.text},
            )
            answer.raise_for_status()
            result.durations_ms.append(round((asyncio.get_running_loop().time() - began) * 1000))
            line = await http.get(f"/v1/tasks/{answer.json()['task_id']}/line", params={"project": project})
            line.raise_for_status()
        _count(answer.json(), line.json(), query, corpus, result)

    await asyncio.gather(*(one(query) for query in group.queries))


def _count(
    task: dict[str, Any], line: dict[str, Any], query: SetQuery, corpus: EvaluationCorpus, result: AnswerFigures
) -> None:
    citations = (task.get("findings") or {}).get("citations", [])
    for citation in citations:
        result.spans += 1
        result.resolved += (
            corpus.text(citation["source_path"])[citation["start"] : citation["end"]] == citation["quote"]
        )
    cited = any(corpus.owner(each["source_path"], each["id"]) in query.relevant for each in citations[:CITATIONS])
    steps = [action for action in line["items"] if action["agent"] == "developer"]
    result.rewritten += any((action.get("result") or "").startswith("look again") for action in steps)
    if task["state"] == "completed":
        fell_back = any("fall back" in (action.get("result") or "") for action in steps)
        result.endings["fallback" if fell_back else "answered"] += 1
        result.cited.append((query, cited))
    else:
        code = (task.get("escalation") or {}).get("code") or task["state"]
        result.endings[code] += 1
        result.cited.append((query, False))
        result.candidates_cited += cited


def format_result(result: dict[str, Any]) -> str:
    """Return the result of a set as text."""
    endings = ", ".join(f"{count} {ending}" for ending, count in result["endings"].items())
    return "\n".join(
        (
            f"\n{result['set']} ({result['type']}): {result['questions']} questions: {endings}",
            f"  the first {CITATIONS} citations of the answer have the evidence  {result['answers_cite_evidence']}",
            f"  those, or the candidates shown without an answer       {result['answers_or_candidates_cite_evidence']}",
            *(f"    category {each:40} {share}" for each, share in result["by_category"].items()),
            f"  cited spans that resolve to the character              {result['cited_spans_resolve']}"
            f" of {result['cited_spans']}",
            f"  resolved without the fallback                          {result['resolved_without_fallback']}",
            f"  searched again in other words                            {result['put_in_other_words']}",
            f"  p50 {result['p50_ms']} ms, {AT_ONCE} at a time",
        )
    )


async def run(folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all sets of a folder on one temporary stack."""
    sets = list(read_sets(args.folder, folder / "converted"))
    async with temporary_stack(folder / "stack") as (_, http):
        return [
            (await measure_set(http, f"set{n}", each, args.type or content_type_of(each))).as_json()
            for n, each in enumerate(sets)
        ]


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--type", choices=TYPES)
    args = parser.parse_args()
    with bench_folder("answer") as folder:
        results = bus.run(run(folder, args))
    if args.json:
        output = results[0] if len(results) == 1 else {"sets": results}
        print(json.dumps({**output, "machine": machine_facts()}))
    else:
        print("\n".join(map(format_result, results)))


if __name__ == "__main__":
    main()
