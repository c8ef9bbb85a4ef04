"""`bench recognition`: whether an incident is recognised in other words, and the fix that worked is proposed.

    python tests/bench/recognition.py DIR [--json] [--verbose] [--fit FILE]

DIR has `cases.jsonl`, one JSON object a line: `{id, pair, role: first|second|single|near_miss_of:ID, system, title,
description, error_message, failed_attempts, fix, difficulty?}`. Every `first`, and every `single` with a fix, is
reported as a past incident of a project without documents: the attempts that failed, then the fix. Every `second`,
every near miss and every `single` without a fix is then a task of its own; nothing is learned between them. `--fit`
writes a calibration whose model of likeness is fitted to the set.
"""

import argparse
import asyncio
import json
import math
import os
import platform
import sys
import tempfile
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
from bench.likeness_fit import Report, cross_validated, fit
from bench.measure import quiet_logs, say, stop_when_told
from bench.ranking import auroc, ece, reliability

from counterpoint import bus
from counterpoint.bus import BusSettings, Service
from counterpoint.developer.attempts import resemblance
from counterpoint.developer.evidence import queries
from counterpoint.developer.failure import failure_of_attempt, failure_of_task
from counterpoint.developer.likeness import RECOGNISED
from counterpoint.developer.relevance import calibration
from counterpoint.developer.words import content_words
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.memory.retrieval.bm25 import idf
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.messages import Shape
from counterpoint.proto.tasks import SubmitTask, TaskDelegated
from counterpoint.recall import Memory

PROJECT, PRINCIPAL, SOURCE = "recognition", "administrator", "recognition"
AT_ONCE, WAIT_S, BATCH = 3, 60, 100
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


async def learn(http: httpx.AsyncClient, learned: Sequence[Case]) -> dict[str, str]:
    """Report the cases; the case of each attempt by its id."""
    rows = [(case.id, incident) for case in learned for incident in case.incidents()]
    made: dict[str, str] = {}
    for start in range(0, len(rows), BATCH):
        portion = rows[start : start + BATCH]
        answer = await http.post(
            "/v1/attempts", params={"project": PROJECT}, json={"incidents": [incident for _, incident in portion]}
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
        similar = dict.fromkeys(made[each["id"]] for each in findings.get("similar_attempts", []) if each["id"] in made)
        cited = [made[each["id"]] for each in findings.get("citations", []) if each["id"] in made]
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


async def reports(memory: Memory, asked: Sequence[Case], learned: Sequence[Case], made: dict[str, str]) -> list[Report]:
    """The features of the candidates of every case, for the fit."""
    right = {case.pair: case.id for case in learned if case.role == "first"}
    fault = {case.id: case.pair or case.id for case in (*learned, *asked)}
    made_of = []
    for case in asked:
        task = SubmitTask.model_validate(case.submission())
        message = TaskDelegated(
            task_id=case.id, project=PROJECT, session_id="-", attempt=1, task=task, lane="investigate"
        )
        wanted = {name: query for name, query in queries(message).items() if name in ("by_report", "by_error")}
        found = dict(zip(wanted, await memory.query(*wanted.values(), timeout_s=60), strict=True))
        now = failure_of_task(task)
        by_report = {item.id: item for item in found["by_report"].items}
        by_error = {item.id: item for item in found["by_error"].items} if "by_error" in found else {}
        of_case = {}
        for item in {**by_error, **by_report}.values():
            earlier = failure_of_attempt(Attempt.model_validate(item.body))
            scores = [(each.get(item.id).scores or {}) if item.id in each else {} for each in (by_report, by_error)]
            of_case.setdefault(made[item.id], []).append(resemblance(earlier, now, *scores))
        names = list(of_case)
        best = tuple(max(of_case[name], key=lambda each: (each.coverage, each.cosine)) for name in names)
        wanted_case = right.get(case.pair) if case.role == "second" else None
        group = fault.get(case.role.partition(":")[2], case.pair or case.id)
        made_of.append(
            Report(group, best, names.index(wanted_case) if wanted_case in names else None, case.role == "second")
        )
    return made_of


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
    every = cases(given.folder)
    learned, asked = [case for case in every if case.learned], [case for case in every if not case.learned]
    stack = Stack(folder / "stack", http_port=0)
    await stack.start()
    try:
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=600) as http:
            made = await learn(http, learned)
            say(f"{len(learned)} cases reported as {len(made)} attempts, {len(asked)} to ask")
            if given.fit:
                await _fit(folder, stack, given, asked, learned, made)
            return await ask(http, asked, learned, made)
    finally:
        await stack.stop()


async def _fit(
    folder: Path,
    stack: Stack,
    given: argparse.Namespace,
    asked: Sequence[Case],
    learned: Sequence[Case],
    made: dict[str, str],
) -> None:
    secrets = load_credentials(folder / "stack" / "secrets.json", NATS_USERS)
    password = SecretStr(secrets.nats["router"])
    router = Service("router", BusSettings(nats_url=stack.endpoints.nats, nats_user="router", nats_password=password))
    await router.connection.open()
    try:
        made_of = await reports(router.memory(PROJECT, PRINCIPAL), asked, learned, made)
    finally:
        await router.connection.close()
    figures = cross_validated(made_of)
    say(figures)
    fitted_on = f"{given.folder.name}: {len(learned)} incidents, {len(asked)} reports; {figures}"
    fitted = calibration().model_copy(update={"likeness": fit(made_of, fitted_on)})
    given.fit.write_text(fitted.model_dump_json(indent=2) + "\n")


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="also each case")
    parser.add_argument("--fit", type=Path, metavar="FILE")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    with tempfile.TemporaryDirectory(prefix="counterpoint-bench-") as folder:
        try:
            outcomes = bus.run(run(Path(folder), given))
        except Unreadable as unreadable:
            sys.exit(f"bench recognition: {unreadable}")
    result = {"set": given.folder.name, **summary(outcomes)}
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
