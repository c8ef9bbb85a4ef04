"""`counterpoint ingest --bootstrap`: import existing documents in phases (docs/ingestion.md).

A phase can be repeated: unchanged documents are skipped, so an interrupted run continues. At the end a health check
searches for some of the documents.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from counterpoint.cli.errors import ApiError, Exit, UsageError
from counterpoint.cli.ingest.phases import PHASES, PROVIDERS, PhaseContent, PhaseOptions, collect
from counterpoint.cli.ingest.upload import send_with_progress
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import quantity

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient
    from counterpoint.cli.ingest.files import SourceFile

PROBES = 3
"""Documents of a phase that the health check searches for: the first, the last, and one between."""
_PROBE_CHARS = 300
_ROWS = 25
_KEPT = ("added", "replaced", "unchanged")


@dataclass(frozen=True)
class SearchProbe:
    """A search of the health check, and whether it found the document."""

    query: str
    found: bool
    problem: str | None = None


@dataclass
class PhaseResult:
    """Result of a phase. `counts` are documents and index rows by status."""

    name: str
    where: str
    counts: Counter[str] = field(default_factory=Counter)
    passages: int = 0
    problems: list[str] = field(default_factory=list)
    probes: list[SearchProbe] = field(default_factory=list)

    @property
    def status(self) -> Literal["done", "unchanged", "empty", "failed"]:
        """Return the status: `unchanged` after an earlier run, `empty` without documents."""
        if self.problems or any(not probe.found for probe in self.probes):
            return "failed"
        if not self.counts:
            return "empty"
        return "unchanged" if set(self.counts) == {"unchanged"} else "done"

    def report(self) -> dict[str, Any]:
        """Return the phase as JSON."""
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
        """Return the phase as one line."""
        descriptions = {"unchanged": "already done, nothing has changed", "empty": f"nothing found in {self.where}"}
        summary = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        words = descriptions.get(self.status) or f"{self.status}: {summary or 'no documents'}"
        if self.status == "unchanged":
            words += f" ({summary})"
        if self.passages:
            words += f"; {self.passages} passages"
        return f"{self.name}: {words}"


def run(session: CommandSession, options: PhaseOptions, names: Sequence[str]) -> Exit:
    """Run all phases or the named ones. The exit code is 1 when one failed, or a named one was empty."""
    for name in names:
        if name not in PHASES:
            raise UsageError(f"a phase is one of {', '.join(PHASES)}, not {name}")
    phases: list[PhaseResult] = []
    with session.connect() as api:
        for number, name in enumerate(names or PHASES, 1):
            found = collect(name, options, Path.cwd(), os.environ)
            packages = f", {quantity(len(found.providers), 'package')}" if name == PROVIDERS else ""
            size = quantity(len(found.documents), "document") + packages
            session.note(f"[{number}/{len(names or PHASES)}] {name}: {size}")
            phase = _phase(session, api, name, found)
            phases.append(phase)
            for problem in phase.problems:
                session.note(f"  {problem}")
            session.note(f"  {phase.line()}")
        attempts = _attempts(api, session.project)
    report = {"phases": [phase.report() for phase in phases], "attempts": vars(attempts)}
    session.show(report, lambda: _summary(phases, attempts))
    failed = any(phase.status == "failed" or (names and phase.status == "empty") for phase in phases)
    return Exit.FAILED if failed or not attempts.found else Exit.DONE


def _phase(session: CommandSession, api: "ApiClient", name: str, found: PhaseContent) -> PhaseResult:
    phase = PhaseResult(name, found.where, problems=list(found.problems))
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
    except ApiError as refused:
        phase.problems.append(_problem(refused))
    return phase


def _index(api: "ApiClient", project: str | None, found: PhaseContent, phase: PhaseResult) -> None:
    for start in range(0, len(found.providers), _ROWS):
        group = [row.model_dump(mode="json", exclude_none=True) for row in found.providers[start : start + _ROWS]]
        for one in api.post("/v1/providers", {"providers": group}, project=project)["providers"]:
            phase.counts[one["status"]] += 1
            if one["status"] not in _KEPT:
                phase.problems.append(f"{one['status']} {one['id']}: {one.get('problem')}")


def _probes(api: "ApiClient", project: str | None, documents: "Sequence[SourceFile]") -> list[SearchProbe]:
    """Search for some of the documents, each by a line that only it contains."""
    lines = Counter(line for one in documents for line in {line.strip() for line in one.text.splitlines()})
    chosen = {documents[at].source: documents[at] for at in _spread(len(documents))}
    probes = []
    for one in chosen.values():
        text = probe_line(one.text, lines)
        body = {"text": text, "k": 10}
        hits = api.post("/v1/search", body, project=project)["items"]
        found = any(hit.get("source") == one.source for hit in hits)
        others = quantity(len(hits), "passage")
        problem = None if found else f"a search for a line of it finds {others} of other sources"
        probes.append(SearchProbe(f"passages of {one.source}", found, problem))
    return probes


def probe_line(text: str, lines: Counter[str]) -> str:
    """Return the longest of the rarest lines of a text."""
    own = [line.strip() for line in text.splitlines() if line.strip()]
    return max(own, key=lambda line: (-lines[line], len(set(line.split()))))[:_PROBE_CHARS]


def _spread(count: int) -> list[int]:
    return sorted({round(at * (count - 1) / (PROBES - 1)) for at in range(PROBES)}) if count else []


def _rows(api: "ApiClient", project: str | None, found: PhaseContent) -> list[SearchProbe]:
    probes = []
    for at in _spread(len(found.providers)):
        row = found.providers[at]
        items = api.get("/v1/providers", package=row.package, project=project)["items"]
        known = any(item.get("package_version") == row.package_version for item in items)
        problem = None if known else f"{quantity(len(items), 'row')}, none of version {row.package_version}"
        probes.append(SearchProbe(f"{row.package} in the provider index", known, problem))
    return probes


def _attempts(api: "ApiClient", project: str | None) -> SearchProbe:
    """Check that attempts can be listed. An empty list is not an error."""
    try:
        known = api.get("/v1/attempts", limit=1, project=project)["items"]
    except ApiError as refused:
        return SearchProbe("past attempts", False, _problem(refused))
    hint = "none yet: `counterpoint ingest FILE --type troubleshooting` imports past incidents"
    return SearchProbe("past attempts", True, None if known else hint)


def _problem(refused: ApiError) -> str:
    faults = "; ".join(f"{each.get('field')} {each.get('problem')}" for each in refused.body.get("errors", ()))
    return f"{refused}: {faults or refused.body.get('detail') or refused.status}"


def _summary(phases: Sequence[PhaseResult], attempts: SearchProbe) -> str:
    lines = [phase.line() for phase in phases]
    for phase in phases:
        lines += [_said(probe) for probe in phase.probes]
    return "\n".join((*lines, _said(attempts)))


def _said(probe: SearchProbe) -> str:
    word = "found" if probe.found else "NOT FOUND"
    return f"health: {word}: {probe.query}" + (f" ({probe.problem})" if probe.problem else "")
