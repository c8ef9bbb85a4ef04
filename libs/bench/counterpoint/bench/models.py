"""`counterpoint bench models`: a model with this memory, the same model with plain search, and the rules alone.

    python -m counterpoint.bench.models DIR [--model small|scripted] [--limit N] [--json]

DIR is a set of `bench triage` or `bench recognition`. Each case is answered three times: by the rules of a temporary
stack, by the same stack with the model, and by one call of the model with the five best texts of a BM25 search over the
same texts. `small` is the model of `counterpoint model install`, the default if it is installed; `scripted` repeats the
first text of its prompt and offline stands in for a model: it shows that the table works, not how well a model does.
`right` includes what was rightly refused; `missed` was refused although it could be answered.
"""

import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from counterpoint import bus
from counterpoint.bench import recognition, triage
from counterpoint.bench.command_line import bench_parser
from counterpoint.bench.evaluation_sets import UnreadableSet
from counterpoint.bench.recognition_cases import Bm25Baseline, RecognitionCase, RecognitionOutcome
from counterpoint.bench.recognition_cases import read_cases as read_reports
from counterpoint.bench.report import exit_on_sigterm, log_warnings_only, machine_facts, progress
from counterpoint.bench.temporary_stack import temporary_stack
from counterpoint.cli.demo.provider import simulated_provider, variables
from counterpoint.client import Memory
from counterpoint.developer.evidence.likeness import RECOGNISED
from counterpoint.local.small_model.package import QWEN, model_folder
from counterpoint.local.small_model.serve import serving, settings_of
from counterpoint.proto.memory import List

Judgement = Literal["right", "partly", "wrong", "missed"]
COLUMNS: tuple[Judgement, ...] = ("right", "partly", "wrong", "missed")
PASSAGES, PASSAGE_CHARS, REPLY_TOKENS = 5, 1_500, 250
NONE = "NONE"
_ANSWER = (
    "Answer the question from these texts alone, in at most three sentences, with their exact values. "
    f"If they do not answer it, reply {NONE}."
)
_SAME = (
    "Which of these earlier failures has the same cause as the new one? Reply with its number alone. "
    f"If none has, reply {NONE}."
)
_FIRST = re.compile(r"\[1\] (.*?)(?=\n\[2\] |\Z)", re.DOTALL)


@dataclass
class Row:
    """A row of the table: judgements of the cases, calls of the model, those of them without a known outcome, which
    count at their estimate, tokens and seconds."""

    name: str
    judged: list[Judgement] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    calls: int = 0
    failed: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the row with its counts."""
        counts = Counter(self.judged)
        judged: dict[str, Any] = {
            "way": self.name,
            "cases": len(self.judged),
            **{each: counts[each] for each in COLUMNS},
        }
        spent = {"calls": self.calls, "failed": self.failed, "tokens": self.tokens}
        return {**judged, **spent, "seconds": round(self.seconds, 1)}


@dataclass(frozen=True)
class SearchedText:
    """A text of the plain search."""

    id: str
    text: str


@dataclass(frozen=True)
class ServedModel:
    """An OpenAI-compatible model: the variables that make a stack use it, and its address and name."""

    environment: Mapping[str, str]
    url: str
    name: str

    async def reply(self, http: httpx.AsyncClient, prompt: str) -> tuple[str, int]:
        """Return the reply to a prompt, and the tokens of the call."""
        body = {
            "model": self.name,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": REPLY_TOKENS,
        }
        answer = await http.post(f"{self.url}/chat/completions", json=body, headers={"Authorization": "Bearer none"})
        made = answer.raise_for_status().json()
        return made["choices"][0]["message"]["content"] or "", int((made.get("usage") or {}).get("total_tokens", 0))


@contextmanager
def served(which: str) -> Iterator[ServedModel]:
    """Serve a model for the block."""
    if which == "small":
        with serving(QWEN, model_folder(QWEN), 0, Path(os.devnull)) as (url, _):
            environment = {**settings_of(QWEN, url), "COUNTERPOINT_RELATIONS_TOKENS": "0"}
            yield ServedModel(environment, url, QWEN.name)
        return
    with simulated_provider(first_text) as provider:
        environment = provider.environment()
        yield ServedModel(environment, provider.url, environment["COUNTERPOINT_MODEL"].removeprefix("openai/"))


def first_text(prompt: str) -> str:
    """Return the reply of the scripted model: the first text of a prompt, or its number where one is asked for."""
    found = _FIRST.search(prompt)
    if _SAME in prompt:
        return "1" if found else NONE
    return found[1].strip() if found else NONE


def with_texts(task: str, about: str, texts: Sequence[str]) -> str:
    """Return a prompt with numbered texts."""
    numbered = "\n".join(f"[{n}] {text[:PASSAGE_CHARS]}" for n, text in enumerate(texts, 1))
    return f"{numbered}\n\n{task}\n\n{about}"


def judged_answer(case: triage.TriageCase, text: str | None) -> Judgement:
    """Judge an answer to a case of triage."""
    given = triage.verdict(case.expect, text)
    if given == "refused":
        return "right" if case.expect == "refuse" else "missed"
    return given


def judged_report(right: frozenset[str], claimed: str | None) -> Judgement:
    """Judge which earlier case a report was taken for; `right` are the correct ones."""
    if claimed is None:
        return "missed" if right else "right"
    return "right" if claimed in right else "wrong"


def every(cases: Sequence[Any], limit: int) -> list[Any]:
    """Return at most `limit` cases, evenly spread over all."""
    if limit <= 0 or limit >= len(cases):
        return list(cases)
    return [cases[n * len(cases) // limit] for n in range(limit)]


async def triage_rows(folder: Path, limit: int, model: ServedModel) -> list[Row]:
    """Run a set of triage in all three ways."""
    cases = every(triage.read_cases(folder), limit)

    async def asked(http: httpx.AsyncClient, memory: Memory) -> list[Judgement]:
        outcomes = await triage.run_cases(http, memory, cases, at_once=1)
        return [judged_answer(each.case, each.text) for each in outcomes]

    rows = [Row("rules alone"), Row("model with this memory"), Row("model with plain search")]
    texts: list[SearchedText] = []
    for row, environment in zip(rows, ({}, model.environment), strict=False):
        progress(f"{folder.name}: {row.name}")
        with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as scratch, variables(dict(environment)):
            async with triage.stack_with_documents(Path(scratch), folder) as (http, memory):
                began = time.monotonic()
                row.judged = await asked(http, memory)
                row.seconds = time.monotonic() - began
                await _count_calls(http, triage.PROJECT, row)
                pages = memory.pages(List(store="chunks", limit=1000))
                texts = [SearchedText(each.id, str(each.body["text"])) async for page in pages for each in page.items]
    prompts = [
        with_texts(_ANSWER, "\n".join(filter(None, (each.text, each.error_message))), found)
        for each, found in zip(
            cases, _found(texts, [f"{each.text}\n{each.error_message or ''}" for each in cases]), strict=True
        )
    ]
    await _plainly(rows[2], model, prompts, lambda n, reply: judged_answer(cases[n], _unless_none(reply)))
    return rows


async def recognition_rows(folder: Path, limit: int, model: ServedModel) -> list[Row]:
    """Run a set of recognition in all three ways."""
    reports = read_reports(folder)
    learned = [each for each in reports if each.learned]
    cases: list[RecognitionCase] = every([each for each in reports if not each.learned], limit)
    rows = [Row("rules alone"), Row("model with this memory"), Row("model with plain search")]
    outcomes: list[RecognitionOutcome] = []
    for row, environment in zip(rows, ({}, model.environment), strict=False):
        progress(f"{folder.name}: {row.name}")
        with variables(dict(environment)), tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as data:
            async with temporary_stack(Path(data) / "stack") as (_, http):
                case_of_attempt = await recognition.learn(http, learned)
                began = time.monotonic()
                outcomes = await recognition.ask(http, cases, learned, case_of_attempt, at_once=1)
                row.judged = [judged_report(each.right, _claimed(each)) for each in outcomes]
                row.seconds = time.monotonic() - began
                await _count_calls(http, recognition.PROJECT, row)
    text_of = {each.id: each.text for each in learned}
    best = [each.by_words[:PASSAGES] for each in outcomes]
    prompts = [with_texts(_SAME, each.text, [text_of[id] for id in ids]) for each, ids in zip(cases, best, strict=True)]

    def judge(n: int, reply: str) -> Judgement:
        number = re.search(r"\d+", _unless_none(reply) or "")
        known = number is not None and 0 < int(number[0]) <= len(best[n])
        return judged_report(outcomes[n].right, best[n][int(number[0]) - 1] if number and known else None)

    await _plainly(rows[2], model, prompts, judge)
    return rows


def _found(texts: Sequence[SearchedText], queries: Sequence[str]) -> list[list[str]]:
    """Return the best texts of a BM25 search for each query."""
    search, text_of = Bm25Baseline(texts), {each.id: each.text for each in texts}
    return [[text_of[id] for id in search.ranked(query)[:PASSAGES]] for query in queries]


def _claimed(outcome: RecognitionOutcome) -> str | None:
    return outcome.proposed if outcome.likelihood >= RECOGNISED else None


def _unless_none(reply: str) -> str | None:
    return None if not reply.strip() or reply.strip().upper().startswith(NONE) else reply


async def _plainly(
    row: Row, model: ServedModel, prompts: Sequence[str], judge: Callable[[int, str], Judgement]
) -> None:
    """Ask the model once for each case."""
    progress(row.name)
    began = time.monotonic()
    async with httpx.AsyncClient(timeout=600) as http:
        for n, prompt in enumerate(prompts):
            reply, tokens = await model.reply(http, prompt)
            row.judged.append(judge(n, reply))
            row.tokens += tokens
            row.calls += 1
    row.seconds = time.monotonic() - began


async def _count_calls(http: httpx.AsyncClient, project: str, row: Row) -> None:
    answer = await http.get("/v1/costs", params={"project": project})
    total = answer.raise_for_status().json()["total"]
    row.calls, row.failed = total["calls"], total["unknown"]
    row.tokens = total["input_tokens"] + total["output_tokens"]


def format_rows(rows: Sequence[Row]) -> str:
    """Return the table as text."""
    names = ("cases", *COLUMNS, "calls", "failed", "tokens", "seconds")
    lines = [f"{'':26}" + "".join(f"{name:>9}" for name in names)]
    for made in (row.as_json() for row in rows):
        lines.append(f"{made['way']:26}" + "".join(f"{made[name]:>9}" for name in names))
    return "\n".join(lines)


async def run(folder: Path, limit: int, which: str) -> list[Row]:
    """Run a set with a model in all three ways. Raises `UnreadableSet`."""
    measure = triage_rows if (folder / "docs").is_dir() else recognition_rows
    with served(which) as model:
        return await measure(folder, limit, model)


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--model", choices=("small", "scripted"))
    parser.add_argument("--limit", type=int, default=0, metavar="N")
    args = parser.parse_args()
    log_warnings_only()
    exit_on_sigterm()
    installed = model_folder(QWEN).installed
    which = args.model or ("small" if installed else "scripted")
    if which == "small" and not installed:
        sys.exit("counterpoint bench models: the small model is not installed: run `counterpoint model install`")
    try:
        rows = bus.run(run(args.folder, args.limit, which))
    except UnreadableSet as unreadable:
        sys.exit(f"counterpoint bench models: {unreadable}")
    name = QWEN.name if which == "small" else which
    if args.json:
        made = {"set": args.folder.name, "model": name, "rows": [row.as_json() for row in rows]}
        print(json.dumps(made | {"machine": machine_facts()}))
    else:
        print(f"{args.folder.name}, {name}\n{format_rows(rows)}")


if __name__ == "__main__":
    main()
