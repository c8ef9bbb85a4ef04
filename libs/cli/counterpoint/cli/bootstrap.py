"""`counterpoint ingest --bootstrap`: a memory that begins with what is there already (row A9).

Phase by phase, and each again as often as one likes: what memory has is unchanged, so a run that broke off goes on
where it was. At the end memory is asked for what it was just given.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from counterpoint.cli.errors import Exit, Misused, Refused
from counterpoint.cli.ingest import send_with_progress
from counterpoint.cli.phases import PHASES, PROVIDERS, Found, Given, look
from counterpoint.cli.session import Session

if TYPE_CHECKING:
    from counterpoint.cli.api import Api
    from counterpoint.cli.files import Readable

PROBES = 3
"""Documents of a phase that memory is asked for: the first, the last, and one between them."""
_PROBE_CHARS = 300
_ROWS = 25
_KEPT = ("added", "replaced", "unchanged")


@dataclass(frozen=True)
class Probe:
    """One question to memory about what it was given, and whether it had it."""

    asked: str
    found: bool
    problem: str | None = None


@dataclass
class Phase:
    """What became of one phase. `counts` are documents and rows of the index by memory's word for each."""

    name: str
    where: str
    counts: Counter[str] = field(default_factory=Counter)
    passages: int = 0
    problems: list[str] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)

    @property
    def status(self) -> Literal["done", "unchanged", "empty", "failed"]:
        """`unchanged`: it was done before, and memory has all of it; `empty`: there was nothing to hand over."""
        if self.problems or any(not probe.found for probe in self.probes):
            return "failed"
        if not self.counts:
            return "empty"
        return "unchanged" if set(self.counts) == {"unchanged"} else "done"

    def report(self) -> dict[str, Any]:
        """The phase as JSON."""
        return {
            "phase": self.name,
            "status": self.status,
            "where": self.where,
            "counts": dict(self.counts),
            "passages": self.passages,
            "problems": self.problems,
            "health": [vars(probe) for probe in self.probes],
        }

    def line(self) -> str:
        """The phase in one line."""
        said = {"unchanged": "done before, nothing has changed", "empty": f"nothing found in {self.where}"}
        counted = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        words = said.get(self.status) or f"{self.status}: {counted or 'nothing handed over'}"
        if self.status == "unchanged":
            words += f" ({counted})"
        if self.passages:
            words += f"; {self.passages} passages"
        return f"{self.name}: {words}"


def run(session: Session, given: Given, wanted: Sequence[str]) -> Exit:
    """All phases or those that are named, each with its health check; 1 when one failed, or a named one was empty."""
    for name in wanted:
        if name not in PHASES:
            raise Misused(f"a phase is one of {', '.join(PHASES)}, not {name}")
    phases: list[Phase] = []
    with session.connect() as api:
        for number, name in enumerate(wanted or PHASES, 1):
            found = look(name, given, Path.cwd(), os.environ)
            size = f"{len(found.documents)} documents" + (f", {len(found.providers)} packages" * (name == PROVIDERS))
            session.note(f"[{number}/{len(wanted or PHASES)}] {name}: {size}")
            phase = _phase(session, api, name, found)
            phases.append(phase)
            for problem in phase.problems:
                session.note(f"  {problem}")
            session.note(f"  {phase.line()}")
        attempts = _attempts(api, session.project)
    report = {"phases": [phase.report() for phase in phases], "attempts": vars(attempts)}
    session.show(report, lambda: _summary(phases, attempts))
    failed = any(phase.status == "failed" or (wanted and phase.status == "empty") for phase in phases)
    return Exit.FAILED if failed or not attempts.found else Exit.DONE


def _phase(session: Session, api: "Api", name: str, found: Found) -> Phase:
    phase = Phase(name, found.where, problems=list(found.problems))
    try:
        results = send_with_progress(session.err, api, found.documents, session.project)
        for result in results:
            phase.counts[result["status"]] += 1
            phase.passages += result.get("chunks", 0)
            if result["status"] not in _KEPT:
                phase.problems.append(f"{result['status']} {result['source']}: {result.get('problem')}")
        _index(api, session.project, found, phase)
        kept = {result["source"] for result in results if result["status"] in _KEPT and result.get("chunks")}
        phase.probes += _probes(
            api, session.project, [one for one in found.documents if one.source in kept and one.text.strip()]
        )
        phase.probes += _rows(api, session.project, found)
    except Refused as refused:
        phase.problems.append(_problem(refused))
    return phase


def _index(api: "Api", project: str | None, found: Found, phase: Phase) -> None:
    for start in range(0, len(found.providers), _ROWS):
        group = [row.model_dump(mode="json", exclude_none=True) for row in found.providers[start : start + _ROWS]]
        for one in api.post("/v1/providers", {"providers": group}, project=project)["providers"]:
            phase.counts[one["status"]] += 1
            if one["status"] not in _KEPT:
                phase.problems.append(f"{one['status']} {one['id']}: {one.get('problem')}")


def _probes(api: "Api", project: str | None, documents: "Sequence[Readable]") -> list[Probe]:
    """What a search finds of some of the documents, each asked for by a line that no other of them has."""
    lines = Counter(line for one in documents for line in {line.strip() for line in one.text.splitlines()})
    chosen = {documents[at].source: documents[at] for at in _spread(len(documents))}
    probes = []
    for one in chosen.values():
        text = probe_line(one.text, lines)
        body = {"text": text, "k": 10}
        hits = api.post("/v1/search", body, project=project)["items"]
        found = any(hit.get("source") == one.source for hit in hits)
        problem = None if found else f"{len(hits)} passages of other sources were found for a line of it"
        probes.append(Probe(f"passages of {one.source}", found, problem))
    return probes


def probe_line(text: str, lines: Counter[str]) -> str:
    """The line of a text with most words among those that `lines` counts least often."""
    own = [line.strip() for line in text.splitlines() if line.strip()]
    return max(own, key=lambda line: (-lines[line], len(set(line.split()))))[:_PROBE_CHARS]


def _spread(count: int) -> list[int]:
    return sorted({round(at * (count - 1) / (PROBES - 1)) for at in range(PROBES)}) if count else []


def _rows(api: "Api", project: str | None, found: Found) -> list[Probe]:
    probes = []
    for at in _spread(len(found.providers)):
        row = found.providers[at]
        items = api.get("/v1/providers", package=row.package, project=project)["items"]
        known = any(item.get("package_version") == row.package_version for item in items)
        problem = None if known else f"{len(items)} rows, none of version {row.package_version}"
        probes.append(Probe(f"{row.package} in the provider index", known, problem))
    return probes


def _attempts(api: "Api", project: str | None) -> Probe:
    """Whether past attempts can be asked for; that there are none yet is said and no fault."""
    try:
        known = api.get("/v1/attempts", limit=1, project=project)["items"]
    except Refused as refused:
        return Probe("past attempts", False, _problem(refused))
    hint = "none yet: `counterpoint ingest FILE --type troubleshooting` brings past incidents"
    return Probe("past attempts", True, None if known else hint)


def _problem(refused: Refused) -> str:
    faults = "; ".join(f"{each.get('field')} {each.get('problem')}" for each in refused.body.get("errors", ()))
    return f"{refused}: {faults or refused.body.get('detail') or refused.status}"


def _summary(phases: Sequence[Phase], attempts: Probe) -> str:
    lines = [phase.line() for phase in phases]
    for phase in phases:
        lines += [_said(probe) for probe in phase.probes]
    return "\n".join((*lines, _said(attempts)))


def _said(probe: Probe) -> str:
    word = "found" if probe.found else "NOT FOUND"
    return f"health: {word}: {probe.asked}" + (f" ({probe.problem})" if probe.problem else "")
