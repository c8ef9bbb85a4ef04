"""`bench triage`: whether questions and failures get the answer that the documents hold, on cases where it is known.

    python tests/bench/triage.py DIR [--json] [--only TYPE] [--verbose]

DIR has `docs/`, which are ingested as they are, and `cases.jsonl`, one JSON object a line:
`{id, text, error_message?, kind: question|troubleshoot, expect: {source, must: [...], must_not: [...]} | "refuse",
type?}`. Every case is a task of a throw-away stack of all five services. A case is right where its answer or proposal
holds every text of `must` and none of `must_not` (white space and case aside); it is wrong where it holds none of
`must`, or something of `must_not`, or is longer than 1,500 characters, or was to be refused. Beside it stand the whole
section around the first passage of the search for the same words, and the best of the first five such sections.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
from pydantic import Field, SecretStr, ValidationError

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.measure import Patient, quiet_logs, say, stop_when_told
from bench.ranking import ece, reliability

from counterpoint import bus
from counterpoint.bus import BusSettings, Service
from counterpoint.cli.files import batches
from counterpoint.cli.sources import Gathered, Wanted
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.proto.memory import HybridSearch, Item, List
from counterpoint.proto.messages import Shape
from counterpoint.recall import Memory

Verdict = Literal["right", "partly", "wrong", "refused"]

MOST_CHARS = 1_500
SECTIONS = 5
PROJECT, PRINCIPAL = "triage", "administrator"
BATCH_BYTES, AT_ONCE, WAIT_S = 256 * 1024, 3, 60
REFUSED = 422
"""The status of a task that was not accepted."""


class Expected(Shape):
    """Texts that a right answer holds and may not hold, and the document that has them."""

    source: str = ""
    must: tuple[str, ...] = Field(min_length=1)
    must_not: tuple[str, ...] = ()


class Case(Shape):
    """A question or a failure and what is expected of it."""

    id: str
    text: str
    error_message: str | None = None
    kind: Literal["question", "troubleshoot"]
    expect: Expected | Literal["refuse"]
    type: str = "other"


@dataclass(frozen=True)
class Outcome:
    """The answer given to a case; `text` is None where none was given."""

    case: Case
    text: str | None
    confidence: float | None
    first_section: str
    first_sections: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the answer."""
        return verdict(self.case.expect, self.text)


def verdict(expect: Expected | Literal["refuse"], text: str | None, most_chars: int | None = MOST_CHARS) -> Verdict:
    """Judge a text; None is a refusal. `partly` has some of `must`, and nothing that makes it wrong."""
    if text is None:
        return "refused"
    if expect == "refuse" or (most_chars is not None and len(text) > most_chars):
        return "wrong"
    plain = _plain(text)
    held = [_plain(each) in plain for each in expect.must]
    if not any(held) or any(_plain(each) in plain for each in expect.must_not):
        return "wrong"
    return "right" if all(held) else "partly"


def _plain(text: str) -> str:
    """A text without quotation marks at the beginning of its lines, in lower case, with single spaces."""
    return " ".join(" ".join(line.removeprefix(">") for line in text.splitlines()).split()).casefold()


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The shares of all cases and of each type."""
    types = sorted({outcome.case.type for outcome in outcomes})
    judged = [
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
            for each in reliability(judged)
        ],
        "ece": ece(judged),
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


def _shares(outcomes: Sequence[Outcome]) -> dict[str, Any]:
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


def _share(of: Iterable[bool]) -> float | None:
    each = list(of)
    return round(sum(each) / len(each), 4) if each else None


class Unreadable(Exception):
    """A folder that is not laid out as told."""


def cases(folder: Path) -> tuple[Case, ...]:
    """The cases of a folder. Raises `Unreadable`."""
    if not (folder / "docs").is_dir():
        raise Unreadable(f"{folder} has no folder docs")
    try:
        lines = (folder / "cases.jsonl").read_text().splitlines()
        return tuple(Case.model_validate_json(line) for line in lines if line.strip())
    except (OSError, ValidationError) as error:
        raise Unreadable(f"{folder}/cases.jsonl: {error}") from error


def documents(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """The documents of a folder as requests of `POST /v1/documents`."""
    files = Gathered(Wanted((str(folder / "docs"),))).documents(
        lambda left_out: say(f"{left_out.path}: {left_out.reason}")
    )
    for batch in batches(files, BATCH_BYTES):
        yield [each.body() for each in batch]


def section_of(item: Item, chunks: Sequence[Item]) -> str:
    """The text of the section that a passage lies in: its neighbours under the same headings."""
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


async def measured(http: httpx.AsyncClient, memory: Memory, of: Sequence[Case]) -> list[Outcome]:
    """All cases, some under way at once."""
    chunks = [item async for page in memory.pages(List(store="chunks", limit=1000)) for item in page.items]
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> Outcome:
        async with turn:
            text = "\n".join(each for each in (case.text, case.error_message) if each)
            (found,) = await memory.query(HybridSearch(store="chunks", text=text, k=20), timeout_s=60)
            sections = list(dict.fromkeys(section_of(item, chunks) for item in found.items))
            answer, confidence = await _asked(http, case)
        return Outcome(case, answer, confidence, sections[0] if sections else "", tuple(sections[:SECTIONS]))

    return list(await asyncio.gather(*map(one, of)))


async def _asked(http: httpx.AsyncClient, case: Case) -> tuple[str | None, float | None]:
    """The answer or the proposal, with its confidence."""
    body: dict[str, Any] = {"kind": case.kind, "description": case.text}
    if case.error_message:
        body["error_message"] = case.error_message
    answer = await http.post(
        "/v1/tasks", params={"project": PROJECT}, headers={"Prefer": f"wait={WAIT_S}"}, json=body
    )  # fmt: skip
    if answer.status_code == REFUSED:
        say(f"{case.id} was not accepted: {answer.text}")
        return None, None
    answer.raise_for_status()
    task = answer.json()
    text = task.get("result") if task["state"] == "completed" else task.get("proposal")
    confidence = task.get("confidence") or {}
    likely = (task.get("findings") or {}).get("likelihood")
    return text, (confidence.get("score") if likely is None else likely)


def shown(result: dict[str, Any]) -> str:
    """The result for people."""
    rows = [("all", result), *((f"  {name}", row) for name, row in result["by_type"].items())]
    names = ("cases", "right", "partly", "missed", "refused", "wrong")
    return "\n".join(
        (
            f"{'':24}" + "".join(f"{name:>9}" for name in names),
            *(f"{name:24}" + "".join(f"{_cell(row[each]):>9}" for each in names) for name, row in rows),
            f"the whole section around the first passage of the search: right {result['baseline']['first_section']}; "
            f"one of the first {SECTIONS}: {result['baseline']['one_of_five_sections']}",
            f"calibration error {result['ece']}; confidence, share right, answers: "
            + ", ".join(
                f"{bin['confidence']:.2f} {bin['right']:.2f} {bin['answers']}" for bin in result["reliability"]
            ),
        )
    )


def _cell(value: float | None) -> str:
    return "-" if value is None else str(value)


@asynccontextmanager
async def ingested(folder: Path, of: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Memory]]:
    """A throw-away stack in `folder` with the documents of a set: its HTTP API, and the memory as the router has it."""
    stack = Stack(folder / "stack", http_port=0)
    await stack.start()
    try:
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        secrets = load_credentials(folder / "stack" / "secrets.json", NATS_USERS)
        login = BusSettings(
            nats_url=stack.endpoints.nats, nats_user="router", nats_password=SecretStr(secrets.nats["router"])
        )
        router = Service("router", login)
        await router.connection.open()
        try:
            async with httpx.AsyncClient(
                base_url=stack.endpoints.http, headers=headers, timeout=600, transport=Patient()
            ) as http:
                for batch in documents(of):
                    answer = await http.post(
                        "/v1/documents", params={"project": PROJECT}, json={"documents": batch}
                    )  # fmt: skip
                    answer.raise_for_status()
                    for became in answer.json().get("documents", []):
                        if became["status"] in ("refused", "quarantined"):
                            say(f"{became['source']}: {became['problem']}")
                yield http, router.memory(PROJECT, PRINCIPAL)
        finally:
            await router.connection.close()
    finally:
        await stack.stop()


async def run(folder: Path, given: argparse.Namespace) -> list[Outcome]:
    """A folder of cases on a throw-away stack."""
    of = [case for case in cases(given.folder) if given.only in (None, case.type)]
    async with ingested(folder, given.folder) as (http, memory):
        return await measured(http, memory, of)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--only", metavar="TYPE")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="also each case and its answer")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        try:
            outcomes = bus.run(run(Path(folder), given))
        except Unreadable as unreadable:
            sys.exit(f"bench triage: {unreadable}")
    result = {"set": given.folder.name, **summary(outcomes)}
    if given.verbose:
        result["each"] = [
            {"id": one.case.id, "verdict": one.verdict, "confidence": one.confidence, "text": one.text}
            for one in outcomes
        ]  # fmt: skip
    if given.json:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
        print(json.dumps({**result, "machine": machine}))
    else:
        print(shown(result))
        for each in result.get("each", ()):
            print(f"\n=== {each['id']}: {each['verdict']} ({each['confidence']})\n{each['text']}")


if __name__ == "__main__":
    main()
