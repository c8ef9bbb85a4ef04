"""`counterpoint bench recognition`: recognition of known incidents in other words, and proposal of the fix that worked.

    python -m counterpoint.bench.recognition DIR [--json] [--verbose] [--among N] [--fit FILE [--with DIR ...]]

DIR contains `cases.jsonl`, one JSON object per line: `{id, pair, role: first|second|single|near_miss_of:ID, system,
title, description, error_message, failed_attempts, fix, difficulty?}`. Every `first`, and every `single` with a fix, is
reported as a past incident of a project without documents: the failed attempts, then the fix. Every `second`, every
near miss and every `single` without a fix is a task. Nothing is learned between the tasks. `--fit` writes a calibration
with a likeness model fitted to the set, and to the further sets of `--with`. `--among` adds synthetic incidents to
memory."""

import argparse
import asyncio
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from counterpoint import bus
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.likeness_features import candidates_of
from counterpoint.bench.likeness_fit import cross_validate, fit_likeness
from counterpoint.bench.recognition_cases import Bm25Baseline, RecognitionCase, RecognitionOutcome, read_cases, summary
from counterpoint.bench.report import machine_facts, progress, settled
from counterpoint.bench.synthetic_incidents import synthetic_incidents
from counterpoint.bench.temporary_stack import temporary_stack
from counterpoint.bus import BusSettings, Service
from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import NATS_USERS
from counterpoint.local.stack import Stack

PROJECT, PRINCIPAL, ATTEMPTS = "recognition", "administrator", "attempts"
AT_ONCE, WAIT_S, BATCH = 3, 60, 100
PROGRESS_EVERY = 5_000
"""Synthetic incidents between two lines of progress."""


async def learn(http: httpx.AsyncClient, learned: Sequence[RecognitionCase], project: str = PROJECT) -> dict[str, str]:
    """Report cases to a project; return cases by the ids of their attempts."""
    rows = [(case.id, incident) for case in learned for incident in case.incidents()]
    case_of_attempt: dict[str, str] = {}
    for start in range(0, len(rows), BATCH):
        portion = rows[start : start + BATCH]
        answer = await http.post(
            "/v1/attempts", params={"project": project}, json={"incidents": [incident for _, incident in portion]}
        )
        answer.raise_for_status()
        for (case, _), attempt in zip(portion, answer.json()["incidents"], strict=True):
            if attempt["status"] == "refused":
                progress(f"{case} was refused: {attempt['problem']}")
            case_of_attempt[attempt["id"]] = case
    return case_of_attempt


async def ask(
    http: httpx.AsyncClient,
    cases: Sequence[RecognitionCase],
    learned: Sequence[RecognitionCase],
    case_of_attempt: dict[str, str],
    at_once: int = AT_ONCE,
) -> list[RecognitionOutcome]:
    """Submit every case as a task, some at a time."""
    baseline, slots = Bm25Baseline(learned), asyncio.Semaphore(at_once)
    of_pair: dict[str | None, set[str]] = defaultdict(set)
    for case in learned:
        of_pair[case.pair].add(case.id)

    async def one(case: RecognitionCase) -> RecognitionOutcome:
        async with slots:
            answer = await http.post(
                "/v1/tasks", params={"project": PROJECT}, headers={"Prefer": f"wait={WAIT_S}"}, json=case.submission()
            )
            answer.raise_for_status()
        task = await settled(http, answer.json(), PROJECT)
        findings = task.get("findings") or {}
        similar = dict.fromkeys(
            case_of_attempt.get(each["id"], each["id"]) for each in findings.get("similar_attempts", [])
        )
        cited = [
            case_of_attempt.get(each["id"], each["id"])
            for each in findings.get("citations", [])
            if each["store"] == ATTEMPTS
        ]
        proposed = cited[0] if task.get("proposal") and cited else None
        return RecognitionOutcome(
            case=case,
            similar=tuple(similar),
            proposed=proposed,
            likelihood=(findings.get("likelihood") or 0.0) if proposed else 0.0,
            by_words=baseline.ranked(case.text),
            right=frozenset(of_pair[case.pair]) if case.role == "second" else frozenset(),
        )

    return list(await asyncio.gather(*map(one, cases)))


def format_result(result: dict[str, Any]) -> str:
    """Return the result as text."""
    rows = [("all", result), *((f"  {name}", row) for name, row in result["by_difficulty"].items())]
    names = ("cases", "recall@1", "recall@3", "proposed", "claimed", "bm25_recall@1", "bm25_recall@3")
    return "\n".join(
        (
            f"{'':16}" + "".join(f"{name:>15}" for name in names),
            *(f"{name:16}" + "".join(f"{_cell(row[each]):>15}" for each in names) for name, row in rows),
            f"wrongly claimed {result['wrongly_claimed']} of {result['near_misses']} near misses and "
            f"{result['strangers']} strangers {result['wrongly_claimed_by_kind']}",
            f"AUROC of the likelihood {result['auroc']}, calibration error {result['ece']}; likelihood, share right, "
            "proposals: "
            + ", ".join(
                f"{bin['likelihood']:.2f} {bin['right']:.2f} {bin['proposals']}" for bin in result["reliability"]
            ),
        )
    )  # fmt: skip


def _cell(value: float | None) -> str:
    return "-" if value is None else str(value)


async def run(folder: Path, args: argparse.Namespace) -> list[RecognitionOutcome]:
    """Run a set on a temporary stack."""
    sets = [read_cases(each) for each in (args.folder, *args.further)]
    incidents, began = synthetic_incidents(args.among), time.monotonic()
    async with temporary_stack(folder / "stack") as (stack, http):
        for start in range(0, args.among, BATCH):
            portion = list(itertools.islice(incidents, BATCH))
            answer = await http.post("/v1/attempts", params={"project": PROJECT}, json={"incidents": portion})
            answer.raise_for_status()
            if start % PROGRESS_EVERY == 0:
                progress(f"{start + len(portion)} synthetic incidents after {time.monotonic() - began:.0f} s")
        case_of_attempt = [await learn(http, _learned(each), _project(n)) for n, each in enumerate(sets)]
        learned, cases = _learned(sets[0]), [case for case in sets[0] if not case.learned]
        progress(f"{len(learned)} cases reported as {len(case_of_attempt[0])} attempts, {len(cases)} to ask")
        if args.fit:
            await _fit(folder, stack, args, list(zip(sets, case_of_attempt, strict=True)))
        return await ask(http, cases, learned, case_of_attempt[0])


def _learned(each: Sequence[RecognitionCase]) -> list[RecognitionCase]:
    return [case for case in each if case.learned]


def _project(number: int) -> str:
    return PROJECT if number == 0 else f"{PROJECT}-{number}"


async def _fit(
    folder: Path,
    stack: Stack,
    args: argparse.Namespace,
    sets: Sequence[tuple[Sequence[RecognitionCase], dict[str, str]]],
) -> None:
    secrets = load_credentials(folder / "stack" / "secrets.json", NATS_USERS)
    password = SecretStr(secrets.nats["router"])
    router = Service("router", BusSettings(nats_url=stack.endpoints.nats, nats_user="router", nats_password=password))
    await router.connection.open()
    try:
        candidates = [
            await candidates_of(router.memory(_project(n), PRINCIPAL), _project(n), each, case_of_attempt)
            for n, (each, case_of_attempt) in enumerate(sets)
        ]
    finally:
        await router.connection.close()
    figures = cross_validate(*candidates)
    progress(figures)
    of = [
        f"{folder.name} ({len(_learned(each))} incidents, {len(each) - len(_learned(each))} reports)"
        for folder, (each, _) in zip((args.folder, *args.further), sets, strict=True)
    ]
    model = fit_likeness(candidates[0], f"{', '.join(of)}; the first in {figures}", *candidates[1:])
    args.fit.write_text(load_calibration().model_copy(update={"likeness": model}).model_dump_json(indent=2) + "\n")


def main() -> None:
    """Run the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--verbose", action="store_true", help="also print each case")
    parser.add_argument("--among", type=int, default=0, metavar="N")
    parser.add_argument("--fit", type=Path, metavar="FILE")
    parser.add_argument("--with", type=Path, metavar="DIR", action="append", default=[], dest="further")
    args = parser.parse_args()
    with bench_folder("recognition") as folder:
        outcomes = bus.run(run(folder, args))
    result = {"set": args.folder.name, "among": args.among, **summary(outcomes)}
    if args.verbose:
        result["each"] = [
            {"id": one.case.id, "role": one.case.role, "right": one.is_right, "proposed": one.proposed,
             "likelihood": one.likelihood, "similar": one.similar[:3]}
            for one in outcomes
        ]  # fmt: skip
    if args.json:
        print(json.dumps({**result, "machine": machine_facts()}))
    else:
        print(format_result(result))
        for each in result.get("each", ()):
            print(json.dumps(each))


if __name__ == "__main__":
    main()
