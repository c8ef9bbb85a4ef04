"""`bench answer`: what the answers to questions rest on, on sets where it is known what answers each.

    python tests/bench/answer.py DIR [--type conversation|docs|code|runbook] [--json]

DIR is as for `bench retrieval`. Each group of a set is a project of a throw-away stack of all five services; its texts
go in over HTTP, its questions are tasks. A citation counts for the text it was taken from.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.measure import Patient, quiet_logs, say, stop_when_told
from bench.retrieval import TYPES, Corpus, type_of
from bench.sets import Group, Query, Set, Unreadable, found

from counterpoint import bus
from counterpoint.local.stack import Stack

CITATIONS = 3
"""So many citations of an answer are looked at."""
BATCH, AT_ONCE, WAIT_S = 20, 4, 60


@dataclass
class Result:
    """What came of the questions of one set."""

    name: str
    type: str
    groups: int
    endings: Counter[str] = field(default_factory=Counter)
    held: list[tuple[Query, bool]] = field(default_factory=list)
    candidates_held: int = 0
    spans: int = 0
    resolved: int = 0
    rewritten: int = 0
    took_ms: list[int] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        asked = len(self.held)
        categories = sorted({query.category for query, _ in self.held if query.category is not None})
        return {
            "set": self.name,
            "type": self.type,
            "questions": asked,
            "answers_cite_evidence": _share(sum(held for _, held in self.held), asked),
            "answers_or_candidates_cite_evidence": _share(
                sum(held for _, held in self.held) + self.candidates_held, asked
            ),
            "by_category": {
                each: _share(
                    sum(held for query, held in self.held if query.category == each),
                    sum(query.category == each for query, _ in self.held),
                )
                for each in categories
            },
            "cited_spans": self.spans,
            "cited_spans_resolve": _share(self.resolved, self.spans),
            "resolved_without_fallback": _share(self.endings["answered"], asked),
            "put_in_other_words": _share(self.rewritten, asked),
            "endings": dict(self.endings),
            "groups": self.groups,
            "p50_ms": statistics.median(self.took_ms) if self.took_ms else None,
        }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


async def measured(http: httpx.AsyncClient, name: str, of: Set, type: str) -> Result:
    """One set."""
    result = Result(of.name, type, len(of.groups))
    for n, group in enumerate(of.groups):
        say(f"{of.name}: group {n + 1} of {len(of.groups)}, {len(group.texts)} texts, {len(group.queries)} questions")
        corpus = Corpus(group, type)
        await _ingest(http, f"{name}-{n}", corpus)
        await _ask(http, f"{name}-{n}", group, corpus, result)
    return result


async def _ingest(http: httpx.AsyncClient, project: str, corpus: Corpus) -> None:
    documents = [
        document.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        for document in corpus.documents
        if (document.text or "").strip()
    ]
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(batch: Sequence[dict[str, Any]]) -> None:
        async with turn:
            answer = await http.post("/v1/documents", params={"project": project}, json={"documents": batch})
            answer.raise_for_status()

    await asyncio.gather(*(one(documents[n : n + BATCH]) for n in range(0, len(documents), BATCH)))


async def _ask(http: httpx.AsyncClient, project: str, group: Group, corpus: Corpus, result: Result) -> None:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(query: Query) -> None:
        async with turn:
            began = asyncio.get_running_loop().time()
            answer = await http.post(
                "/v1/tasks",
                params={"project": project},
                headers={"Prefer": f"wait={WAIT_S}"},
                json={"kind": "question", "description": query.text},
            )
            answer.raise_for_status()
            result.took_ms.append(round((asyncio.get_running_loop().time() - began) * 1000))
            line = await http.get(f"/v1/tasks/{answer.json()['task_id']}/line", params={"project": project})
            line.raise_for_status()
        _count(answer.json(), line.json(), query, corpus, result)

    await asyncio.gather(*(one(query) for query in group.queries))


def _count(task: dict[str, Any], line: dict[str, Any], query: Query, corpus: Corpus, result: Result) -> None:
    citations = (task.get("findings") or {}).get("citations", [])
    for citation in citations:
        result.spans += 1
        result.resolved += (
            corpus.text(citation["source_path"])[citation["start"] : citation["end"]] == citation["quote"]
        )
    held = any(corpus.owner(each["source_path"], each["id"]) in query.relevant for each in citations[:CITATIONS])
    steps = [action for action in line["items"] if action["agent"] == "developer"]
    result.rewritten += any((action.get("result") or "").startswith("look again") for action in steps)
    if task["state"] == "completed":
        fell_back = any("fall back" in (action.get("result") or "") for action in steps)
        result.endings["fallback" if fell_back else "answered"] += 1
        result.held.append((query, held))
    else:
        code = (task.get("escalation") or {}).get("code") or task["state"]
        result.endings[code] += 1
        result.held.append((query, False))
        result.candidates_held += held


def shown(result: dict[str, Any]) -> str:
    """A set for people."""
    endings = ", ".join(f"{count} {ending}" for ending, count in result["endings"].items())
    return "\n".join(
        (
            f"\n{result['set']} ({result['type']}): {result['questions']} questions: {endings}",
            f"  the first {CITATIONS} citations of the answer hold the evidence  {result['answers_cite_evidence']}",
            f"  those, or the candidates shown without an answer       {result['answers_or_candidates_cite_evidence']}",
            *(f"    category {each:40} {share}" for each, share in result["by_category"].items()),
            f"  cited spans that resolve to the character              {result['cited_spans_resolve']}"
            f" of {result['cited_spans']}",
            f"  resolved without the fallback                          {result['resolved_without_fallback']}",
            f"  put in other words on the way                          {result['put_in_other_words']}",
            f"  p50 {result['p50_ms']} ms, {AT_ONCE} under way at once",
        )
    )


async def run(folder: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """All sets in a folder, on one throw-away stack."""
    sets = list(found(given.folder, folder / "converted"))
    stack = Stack(folder / "stack", http_port=0)
    await stack.start()
    try:
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        async with httpx.AsyncClient(
            base_url=stack.endpoints.http, headers=headers, timeout=600, transport=Patient()
        ) as http:
            return [
                (await measured(http, f"set{n}", each, given.type or type_of(each))).as_json()
                for n, each in enumerate(sets)
            ]
    finally:
        await stack.stop()


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--type", choices=TYPES)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        try:
            results = bus.run(run(Path(folder), given))
        except Unreadable as unreadable:
            sys.exit(f"bench answer: {unreadable}")
    if given.json:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
        print(
            json.dumps(
                {**results[0], "machine": machine} if len(results) == 1 else {"sets": results, "machine": machine}
            )
        )
    else:
        print("\n".join(map(shown, results)))


if __name__ == "__main__":
    main()
