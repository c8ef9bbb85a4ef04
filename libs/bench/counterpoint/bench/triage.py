"""`counterpoint bench triage`: verdicts on the answers to questions and failures, on cases with known answers.

    python -m counterpoint.bench.triage DIR [--json] [--only TYPE] [--verbose]

DIR contains `docs/`, which is ingested as it is, and `cases.jsonl`, one JSON object per line:
`{id, text, error_message?, kind: question|troubleshoot, expect: {source, must: [...], must_not: [...]} | "refuse",
type?}`. Every case is a task of a temporary stack of all five services. A case is right if its answer or proposal
contains every text of `must` and none of `must_not`, ignoring white space and case. It is wrong if the answer contains
none of `must` or a text of `must_not`, is longer than 1,500 characters, or should have been refused. The baselines are
the whole section around the first passage of a search for the same words, and the best of the first five sections.
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
from pydantic import Field, SecretStr, ValidationError

from counterpoint import bus
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.evaluation_metrics import ece, reliability
from counterpoint.bench.evaluation_sets import UnreadableSet
from counterpoint.bench.report import machine_facts, progress, settled
from counterpoint.bench.temporary_stack import temporary_stack
from counterpoint.bus import BusSettings, Service
from counterpoint.cli.ingest.files import batches
from counterpoint.cli.ingest.sources import DocumentSources, SourceSelection
from counterpoint.client import Memory
from counterpoint.developer.policies.review import OBJECTION
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import NATS_USERS
from counterpoint.proto.memory import HybridSearch, Item, List
from counterpoint.proto.messages import Shape

Verdict = Literal["right", "partly", "wrong", "refused"]

MAX_CHARS = 1_500
SECTIONS = 5
PROJECT, PRINCIPAL = "triage", "administrator"
BATCH_BYTES, AT_ONCE, WAIT_S = 256 * 1024, 3, 60
REFUSED = 422
"""HTTP status of a task that was not accepted."""


class ExpectedAnswer(Shape):
    """Texts that a right answer contains and must not contain, and the document with them."""

    source: str = ""
    must: tuple[str, ...] = Field(min_length=1)
    must_not: tuple[str, ...] = ()


class TriageCase(Shape):
    """Question or failure with its expected answer."""

    id: str
    text: str
    error_message: str | None = None
    kind: Literal["question", "troubleshoot"]
    expect: ExpectedAnswer | Literal["refuse"]
    type: str = "other"


@dataclass(frozen=True)
class TriageOutcome:
    """Answer to a case. `text` is None if it was refused. `objections`: the rules by which the reviewer objected."""

    case: TriageCase
    text: str | None
    confidence: float | None
    first_section: str
    first_sections: tuple[str, ...]
    objections: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Verdict on the answer."""
        return verdict(self.case.expect, self.text)


def verdict(expect: ExpectedAnswer | Literal["refuse"], text: str | None, max_chars: int | None = MAX_CHARS) -> Verdict:
    """Judge a text; None is a refusal. `partly`: it contains some of `must`, and nothing makes it wrong."""
    if text is None:
        return "refused"
    if expect == "refuse" or (max_chars is not None and len(text) > max_chars):
        return "wrong"
    plain = _plain(text)
    contained = [_plain(each) in plain for each in expect.must]
    if not any(contained) or any(_plain(each) in plain for each in expect.must_not):
        return "wrong"
    return "right" if all(contained) else "partly"


def _plain(text: str) -> str:
    """Return a text in lower case with single spaces and without the quote marks of its lines."""
    return " ".join(" ".join(line.removeprefix(">") for line in text.splitlines()).split()).casefold()


def summary(outcomes: Sequence[TriageOutcome]) -> dict[str, Any]:
    """Return the shares over all cases and of each type."""
    types = sorted({outcome.case.type for outcome in outcomes})
    scored = [
        (outcome.confidence, outcome.verdict == "right")
        for outcome in outcomes
        if outcome.text is not None and outcome.confidence is not None
    ]
    answerable = [outcome for outcome in outcomes if outcome.case.expect != "refuse"]
    return {
        **_shares(outcomes),
        "by_type": {each: _shares([one for one in outcomes if one.case.type == each]) for each in types},
        "reliability": [
            {"from": each.start, "answers": each.count, "confidence": each.mean, "right": each.right}
            for each in reliability(scored)
        ],
        "ece": ece(scored),
        "objections": _objections(outcomes),
        "baseline": {
            "first_section": _share(
                verdict(one.case.expect, one.first_section, None) == "right" for one in answerable
            ),
            "one_of_five_sections": _share(
                any(verdict(one.case.expect, text, None) == "right" for text in one.first_sections)
                for one in answerable
            ),
        },
    }  # fmt: skip


def _shares(outcomes: Sequence[TriageOutcome]) -> dict[str, Any]:
    answerable = [one for one in outcomes if one.case.expect != "refuse"]
    refusals = [one for one in outcomes if one.case.expect == "refuse"]
    return {
        "cases": len(outcomes),
        "right": _share(one.verdict == "right" for one in answerable),
        "partly": _share(one.verdict == "partly" for one in answerable),
        "missed": _share(one.verdict == "refused" for one in answerable),
        "refused": _share(one.verdict == "refused" for one in refusals),
        "wrong": _share(one.verdict == "wrong" for one in outcomes),
    }


def _objections(outcomes: Sequence[TriageOutcome]) -> dict[str, dict[str, int]]:
    """Return the number of answers by verdict, and of those to which the reviewer objected, in all and by rule."""
    counts: dict[str, dict[str, int]] = {}
    for one in outcomes:
        if one.text is not None:
            row = counts.setdefault(one.verdict, {"answers": 0, "objected": 0})
            for name in ("answers", *(("objected", *one.objections) if one.objections else ())):
                row[name] = row.get(name, 0) + 1
    return counts


def _share(values: Iterable[bool]) -> float | None:
    each = list(values)
    return round(sum(each) / len(each), 4) if each else None


def read_cases(folder: Path) -> tuple[TriageCase, ...]:
    """Read the cases of a folder. Raises `UnreadableSet`."""
    if not (folder / "docs").is_dir():
        raise UnreadableSet(f"{folder} has no folder `docs`")
    try:
        lines = (folder / "cases.jsonl").read_text().splitlines()
        return tuple(TriageCase.model_validate_json(line) for line in lines if line.strip())
    except (OSError, ValidationError) as error:
        raise UnreadableSet(f"{folder}/cases.jsonl: {error}") from error


def documents(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the documents of a folder as requests of `POST /v1/documents`."""
    files = DocumentSources(SourceSelection((str(folder / "docs"),))).documents(
        lambda left_out: progress(f"{left_out.path}: {left_out.reason}")
    )
    for batch in batches(files, BATCH_BYTES):
        yield [each.body() for each in batch]


def section_of(item: Item, chunks: Sequence[Item]) -> str:
    """Return the section of a passage: its neighbours under the same headings."""
    same = [each for each in chunks if each.body["source"] == item.body["source"]]
    same.sort(key=lambda each: int(each.body["start"]))
    at = next((n for n, each in enumerate(same) if each.id == item.id), None)
    if at is None:
        return str(item.body["text"])
    first = last = at
    while first > 0 and same[first - 1].body.get("context") == item.body.get("context"):
        first -= 1
    while last + 1 < len(same) and same[last + 1].body.get("context") == item.body.get("context"):
        last += 1
    return "\n\n".join(str(each.body["text"]) for each in same[first : last + 1])


async def run_cases(
    http: httpx.AsyncClient, memory: Memory, cases: Sequence[TriageCase], at_once: int = AT_ONCE
) -> list[TriageOutcome]:
    """Run all cases, some at a time."""
    chunks = [item async for page in memory.pages(List(store="chunks", limit=1000)) for item in page.items]
    slots = asyncio.Semaphore(at_once)

    async def one(case: TriageCase) -> TriageOutcome:
        async with slots:
            text = "\n".join(each for each in (case.text, case.error_message) if each)
            (found,) = await memory.query(HybridSearch(store="chunks", text=text, k=20), timeout_s=60)
            sections = list(dict.fromkeys(section_of(item, chunks) for item in found.items))
            answer, confidence, objections = await _submit(http, case)
        first = sections[0] if sections else ""
        return TriageOutcome(case, answer, confidence, first, tuple(sections[:SECTIONS]), objections)

    return list(await asyncio.gather(*map(one, cases)))


async def _submit(http: httpx.AsyncClient, case: TriageCase) -> tuple[str | None, float | None, tuple[str, ...]]:
    """Submit a case; return the answer or proposal, its confidence, and the rules by which the reviewer objected."""
    body: dict[str, Any] = {"kind": case.kind, "description": case.text}
    if case.error_message:
        body["error_message"] = case.error_message
    answer = await http.post(
        "/v1/tasks", params={"project": PROJECT}, headers={"Prefer": f"wait={WAIT_S}"}, json=body
    )  # fmt: skip
    if answer.status_code == REFUSED:
        progress(f"{case.id} was not accepted: {answer.text}")
        return None, None, ()
    answer.raise_for_status()
    task = await settled(http, answer.json(), PROJECT)
    text = task.get("result") if task["state"] == "completed" else task.get("proposal")
    confidence = task.get("confidence") or {}
    likelihood = (task.get("findings") or {}).get("likelihood")
    caveats = (task.get("findings") or {}).get("caveats", ())
    objections = [each["rule"] for each in task.get("objections", ())]
    objections += ["caveat" for each in caveats if each.startswith(OBJECTION)]
    score = confidence.get("score") if likelihood is None else likelihood
    return text, score, tuple(dict.fromkeys(objections))


def format_result(result: dict[str, Any]) -> str:
    """Return the result as text."""
    rows = [("all", result), *((f"  {name}", row) for name, row in result["by_type"].items())]
    names = ("cases", "right", "partly", "missed", "refused", "wrong")
    return "\n".join(
        (
            f"{'':24}" + "".join(f"{name:>9}" for name in names),
            *(f"{name:24}" + "".join(f"{_cell(row[each]):>9}" for each in names) for name, row in rows),
            f"the whole section around the first passage of the search: right {result['baseline']['first_section']}; "
            f"one of the first {SECTIONS}: {result['baseline']['one_of_five_sections']}",
            "answers to which the reviewer objected: "
            + ", ".join(f"{row['objected']} of {row['answers']} {name}" for name, row in result["objections"].items()),
            f"calibration error {result['ece']}; confidence, share right, answers: "
            + ", ".join(
                f"{bin['confidence']:.2f} {bin['right']:.2f} {bin['answers']}" for bin in result["reliability"]
            ),
        )
    )


def _cell(value: float | None) -> str:
    return "-" if value is None else str(value)


@asynccontextmanager
async def stack_with_documents(folder: Path, documents_folder: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Memory]]:
    """Run a stack in `folder` with the documents of a set. Yield a client of its HTTP API, and memory as the router."""
    async with temporary_stack(folder / "stack") as (stack, http):
        secrets = load_credentials(folder / "stack" / "secrets.json", NATS_USERS)
        login = BusSettings(
            nats_url=stack.endpoints.nats, nats_user="router", nats_password=SecretStr(secrets.nats["router"])
        )
        router = Service("router", login)
        await router.connection.open()
        try:
            for batch in documents(documents_folder):
                answer = await http.post("/v1/documents", params={"project": PROJECT}, json={"documents": batch})
                answer.raise_for_status()
                for document in answer.json().get("documents", []):
                    if document["status"] in ("refused", "quarantined"):
                        progress(f"{document['source']}: {document['problem']}")
            yield http, router.memory(PROJECT, PRINCIPAL)
        finally:
            await router.connection.close()


async def run(folder: Path, args: argparse.Namespace) -> list[TriageOutcome]:
    """Run the cases of a folder on a temporary stack."""
    cases = [case for case in read_cases(args.folder) if args.only in (None, case.type)]
    async with stack_with_documents(folder, args.folder) as (http, memory):
        return await run_cases(http, memory, cases)


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--only", metavar="TYPE")
    parser.add_argument("--verbose", action="store_true", help="also print each case and its answer")
    args = parser.parse_args()
    with bench_folder("triage") as folder:
        outcomes = bus.run(run(folder, args))
    result = {"set": args.folder.name, **summary(outcomes)}
    if args.verbose:
        result["each"] = [
            {"id": one.case.id, "verdict": one.verdict, "confidence": one.confidence, "text": one.text}
            for one in outcomes
        ]  # fmt: skip
    if args.json:
        print(json.dumps({**result, "machine": machine_facts()}))
    else:
        print(format_result(result))
        for each in result.get("each", ()):
            print(f"\n=== {each['id']}: {each['verdict']} ({each['confidence']})\n{each['text']}")


if __name__ == "__main__":
    main()
