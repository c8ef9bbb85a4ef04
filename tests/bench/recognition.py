"""`bench recognition`: whether an incident is recognised in other words, and the fix that worked is proposed.

    python tests/bench/recognition.py DIR [--json] [--verbose] [--among N] [--fit FILE [--with DIR ...]]

DIR has `cases.jsonl`, one JSON object a line: `{id, pair, role: first|second|single|near_miss_of:ID, system, title,
description, error_message, failed_attempts, fix, difficulty?}`. Every `first`, and every `single` with a fix, is
reported as a past incident of a project without documents: the attempts that failed, then the fix. Every `second`,
every near miss and every `single` without a fix is then a task of its own; nothing is learned between them. `--fit`
writes a calibration whose model of likeness is fitted to the set, and to the further sets that `--with` names. With
`--among` memory holds so many invented incidents besides.
"""

import argparse
import asyncio
import itertools
import json
import math
import os
import platform
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr, ValidationError

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.invented import incidents
from bench.likeness_fit import cross_validated, fit
from bench.likeness_reports import reports
from bench.measure import Patient, quiet_logs, say, stop_when_told
from bench.ranking import auroc, ece, reliability

from counterpoint import bus
from counterpoint.bus import BusSettings, Service
from counterpoint.developer.likeness import RECOGNISED
from counterpoint.developer.relevance import calibration
from counterpoint.developer.words import content_words
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.memory.retrieval.bm25 import idf
from counterpoint.proto.messages import Shape

PROJECT, PRINCIPAL, SOURCE, ATTEMPTS = "recognition", "administrator", "recognition", "attempts"
AT_ONCE, WAIT_S, BATCH = 3, 60, 100
FEW = 5_000
"""Invented incidents between two lines about how far it is."""
LONGEST_TITLE, LONGEST_SYSTEM = 300, 64


class Case(Shape):
    """A report of a failure. `pair` joins the reports of one fault."""

    id: str
    pair: str | None = None
    role: str
    system: str = ""
    title: str
    description: str = ""
    error_message: str = ""
    failed_attempts: tuple[str, ...] = ()
    fix: str = ""
    difficulty: str | None = None

    @property
    def learned(self) -> bool:
        """Whether it is reported before anything is asked."""
        return self.role == "first" or (self.role == "single" and bool(self.fix))

    @property
    def text(self) -> str:
        """All its words."""
        return "\n".join(part for part in (self.title, self.description, self.error_message) if part)

    def submission(self) -> dict[str, Any]:
        """The task that reports it."""
        body: dict[str, Any] = {
            "kind": "troubleshoot",
            "title": self.title[:LONGEST_TITLE],
            "description": self.description or self.title,
            "error_message": self.error_message or None,
            "systems": [self.system[:LONGEST_SYSTEM]] if self.system else [],
        }
        return {name: value for name, value in body.items() if value}

    def incidents(self) -> list[dict[str, Any]]:
        """Its attempts as past incidents, the failed ones first."""
        tried = [*((each, "failed") for each in self.failed_attempts), *([(self.fix, "succeeded")] if self.fix else [])]
        began = datetime(2026, 1, 5, tzinfo=UTC)
        return [
            {
                "source": SOURCE,
                "id": f"{self.id}-{n}",
                "title": self.title[:LONGEST_TITLE],
                "description": self.description or self.title,
                **({"error_message": self.error_message} if self.error_message else {}),
                "systems": [self.system] if self.system else [],
                "tried": text,
                "outcome": outcome,
                "when": (began + timedelta(minutes=n)).isoformat(),
                "by": "on-call",
            }
            for n, (text, outcome) in enumerate(tried)
        ]


@dataclass(frozen=True)
class Outcome:
    """The task of a case: the cases of the similar attempts in their order, and the case that the first proposal is
    taken from, with its likelihood; `by_words` is the order of BM25 over the same texts."""

    case: Case
    similar: tuple[str, ...]
    proposed: str | None
    likelihood: float
    by_words: tuple[str, ...]
    right: frozenset[str]

    @property
    def is_right(self) -> bool:
        """Whether the first proposal is the fix of the same fault."""
        return self.proposed is not None and self.proposed in self.right

    def recalled(self, first: int) -> bool:
        """Whether the right case is among the first similar ones."""
        return bool(self.right & set(self.similar[:first]))


class Unreadable(Exception):
    """A folder that is not laid out as described."""


def cases(folder: Path) -> tuple[Case, ...]:
    """The cases of a folder. Raises `Unreadable`."""
    try:
        lines = (folder / "cases.jsonl").read_text().splitlines()
        return tuple(Case.model_validate_json(line) for line in lines if line.strip())
    except (OSError, ValidationError) as error:
        raise Unreadable(f"{folder}/cases.jsonl: {error}") from error


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The shares of all seconds and of each difficulty, and how well the likelihood separates and is calibrated."""
    seconds = [one for one in outcomes if one.case.role == "second"]
    others = [one for one in outcomes if one.case.role != "second"]
    of: dict[str, list[Outcome]] = defaultdict(list)
    for one in seconds:
        of[one.case.difficulty or "other"].append(one)
    judged = [(one.likelihood, True) for one in seconds if one.is_right]
    judged += [(one.likelihood, False) for one in others]
    area = auroc([value for value, _ in judged], [right for _, right in judged])
    offers = [(one.likelihood, one.is_right) for one in outcomes if one.proposed is not None]
    kinds = {"near_misses": [one for one in others if one.case.role.startswith("near_miss_of:")]}
    kinds["strangers"] = [one for one in others if one not in kinds["near_misses"]]
    return {
        **_shares(seconds),
        "by_difficulty": {name: _shares(each) for name, each in sorted(of.items())},
        "wrongly_claimed": _share([_claims(one) for one in others]),
        "wrongly_claimed_by_kind": {name: _share([_claims(one) for one in each]) for name, each in kinds.items()},
        "auroc": None if area is None else round(area, 4),
        "ece": ece(offers),
        "reliability": [
            {"from": each.start, "proposals": each.count, "likelihood": each.mean, "right": each.right}
            for each in reliability(offers)
        ],
        "seconds": len(seconds),
        "near_misses": len(kinds["near_misses"]),
        "strangers": len(kinds["strangers"]),
    }


def _shares(seconds: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "cases": len(seconds),
        "recall@1": _share([one.recalled(1) for one in seconds]),
        "recall@3": _share([one.recalled(3) for one in seconds]),
        "proposed": _share([one.is_right for one in seconds]),
        "claimed": _share([one.is_right and one.likelihood >= RECOGNISED for one in seconds]),
        "bm25_recall@1": _share([bool(one.right & set(one.by_words[:1])) for one in seconds]),
        "bm25_recall@3": _share([bool(one.right & set(one.by_words[:3])) for one in seconds]),
    }


def _claims(one: Outcome) -> bool:
    return one.proposed is not None and one.likelihood >= RECOGNISED


def _share(of: Sequence[bool]) -> float | None:
    return round(sum(of) / len(of), 4) if of else None


class Words:
    """BM25 over the texts of the cases that were reported."""

    def __init__(self, learned: Sequence[Case]) -> None:
        self._ids = [case.id for case in learned]
        self._bags = [Counter(_terms(case.text)) for case in learned]
        self._lengths = [max(1, sum(bag.values())) for bag in self._bags]
        self._mean = sum(self._lengths) / max(1, len(self._lengths))
        self._holders = Counter(term for bag in self._bags for term in bag)

    def ranked(self, text: str) -> tuple[str, ...]:
        """The cases, best first."""
        scores = [self._score(n, _terms(text)) for n in range(len(self._bags))]
        return tuple(self._ids[n] for n in sorted(range(len(scores)), key=lambda n: (-scores[n], n)))

    def _score(self, n: int, terms: Sequence[str]) -> float:
        bag, length = self._bags[n], self._lengths[n] / self._mean
        return math.fsum(
            idf(len(self._bags), self._holders[term]) * bag[term] * 2.2 / (bag[term] + 0.3 + 0.9 * length)
            for term in terms
            if term in bag
        )


def _terms(text: str) -> list[str]:
    return [stem for word in text.split() for stem in sorted(content_words(word))]


async def learn(http: httpx.AsyncClient, learned: Sequence[Case], project: str = PROJECT) -> dict[str, str]:
    """Report the cases to a project; the case of each attempt by its id."""
    rows = [(case.id, incident) for case in learned for incident in case.incidents()]
    made: dict[str, str] = {}
    for start in range(0, len(rows), BATCH):
        portion = rows[start : start + BATCH]
        answer = await http.post(
            "/v1/attempts", params={"project": project}, json={"incidents": [incident for _, incident in portion]}
        )
        answer.raise_for_status()
        for (case, _), became in zip(portion, answer.json()["incidents"], strict=True):
            if became["status"] == "refused":
                say(f"{case} was refused: {became['problem']}")
            made[became["id"]] = case
    return made


async def ask(
    http: httpx.AsyncClient, asked: Sequence[Case], learned: Sequence[Case], made: dict[str, str]
) -> list[Outcome]:
    """Submit every case, some under way at once."""
    words, turn = Words(learned), asyncio.Semaphore(AT_ONCE)
    of_pair: dict[str | None, set[str]] = defaultdict(set)
    for case in learned:
        of_pair[case.pair].add(case.id)

    async def one(case: Case) -> Outcome:
        async with turn:
            answer = await http.post(
                "/v1/tasks", params={"project": PROJECT}, headers={"Prefer": f"wait={WAIT_S}"}, json=case.submission()
            )
            answer.raise_for_status()
        task = answer.json()
        findings = task.get("findings") or {}
        similar = dict.fromkeys(made.get(each["id"], each["id"]) for each in findings.get("similar_attempts", []))
        cited = [
            made.get(each["id"], each["id"]) for each in findings.get("citations", []) if each["store"] == ATTEMPTS
        ]
        proposed = cited[0] if task.get("proposal") and cited else None
        return Outcome(
            case=case,
            similar=tuple(similar),
            proposed=proposed,
            likelihood=(findings.get("likelihood") or 0.0) if proposed else 0.0,
            by_words=words.ranked(case.text),
            right=frozenset(of_pair[case.pair]) if case.role == "second" else frozenset(),
        )

    return list(await asyncio.gather(*map(one, asked)))


def shown(result: dict[str, Any]) -> str:
    """The result for people."""
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


async def run(folder: Path, given: argparse.Namespace) -> list[Outcome]:
    """A set on a throw-away stack."""
    sets = [cases(each) for each in (given.folder, *given.further)]
    invented, began = incidents(given.among), time.monotonic()
    stack = Stack(folder / "stack", http_port=0)
    await stack.start()
    try:
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        async with httpx.AsyncClient(
            base_url=stack.endpoints.http, headers=headers, timeout=600, transport=Patient()
        ) as http:
            for start in range(0, given.among, BATCH):
                portion = list(itertools.islice(invented, BATCH))
                answer = await http.post("/v1/attempts", params={"project": PROJECT}, json={"incidents": portion})
                answer.raise_for_status()
                if start % FEW == 0:
                    say(f"{start + len(portion)} invented incidents after {time.monotonic() - began:.0f} s")
            made = [await learn(http, _learned(each), _project(n)) for n, each in enumerate(sets)]
            learned, asked = _learned(sets[0]), [case for case in sets[0] if not case.learned]
            say(f"{len(learned)} cases reported as {len(made[0])} attempts, {len(asked)} to ask")
            if given.fit:
                await _fit(folder, stack, given, list(zip(sets, made, strict=True)))
            return await ask(http, asked, learned, made[0])
    finally:
        await stack.stop()


def _learned(every: Sequence[Case]) -> list[Case]:
    return [case for case in every if case.learned]


def _project(number: int) -> str:
    return PROJECT if number == 0 else f"{PROJECT}-{number}"


async def _fit(
    folder: Path, stack: Stack, given: argparse.Namespace, sets: Sequence[tuple[Sequence[Case], dict[str, str]]]
) -> None:
    secrets = load_credentials(folder / "stack" / "secrets.json", NATS_USERS)
    password = SecretStr(secrets.nats["router"])
    router = Service("router", BusSettings(nats_url=stack.endpoints.nats, nats_user="router", nats_password=password))
    await router.connection.open()
    try:
        made_of = [
            await reports(router.memory(_project(n), PRINCIPAL), _project(n), every, made)
            for n, (every, made) in enumerate(sets)
        ]
    finally:
        await router.connection.close()
    figures = cross_validated(*made_of)
    say(figures)
    of = [
        f"{folder.name} ({len(_learned(every))} incidents, {len(every) - len(_learned(every))} reports)"
        for folder, (every, _) in zip((given.folder, *given.further), sets, strict=True)
    ]
    model = fit(made_of[0], f"{', '.join(of)}; the first in {figures}", *made_of[1:])
    given.fit.write_text(calibration().model_copy(update={"likeness": model}).model_dump_json(indent=2) + "\n")


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="also each case")
    parser.add_argument("--among", type=int, default=0, metavar="N")
    parser.add_argument("--fit", type=Path, metavar="FILE")
    parser.add_argument("--with", type=Path, metavar="DIR", action="append", default=[], dest="further")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        try:
            outcomes = bus.run(run(Path(folder), given))
        except Unreadable as unreadable:
            sys.exit(f"bench recognition: {unreadable}")
    result = {"set": given.folder.name, "among": given.among, **summary(outcomes)}
    if given.verbose:
        result["each"] = [
            {"id": one.case.id, "role": one.case.role, "right": one.is_right, "proposed": one.proposed,
             "likelihood": one.likelihood, "similar": one.similar[:3]}
            for one in outcomes
        ]  # fmt: skip
    if given.json:
        machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
        print(json.dumps({**result, "machine": machine}))
    else:
        print(shown(result))
        for each in result.get("each", ()):
            print(json.dumps(each))


if __name__ == "__main__":
    main()
