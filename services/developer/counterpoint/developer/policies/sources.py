"""Sources of a result: the items it cites or is decided by, and none of those that were only shown to the developer."""

from collections.abc import Iterable

from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.policies.results import Result, StopResult
from counterpoint.proto.decisions import Source
from counterpoint.proto.findings import Citation


def sources_of(result: Result, evidence: Evidence) -> tuple[Source, ...]:
    """Return the sources of a result: what it cites; of a stop after repeated failures the attempts that failed."""
    if isinstance(result, StopResult) and result.code == "repeated_failure":
        return tuple(one.basis for one in evidence.attempts if one.worth < 0)
    return cited_sources(result.findings.citations, evidence)


def cited_sources(citations: Iterable[Citation], evidence: Evidence | None) -> tuple[Source, ...]:
    """Return the items of citations as sources, each once, with the score it was found with, without candidates."""
    known: list[Source] = []
    if evidence:
        known += [hit.basis for hit in (*evidence.answers, *evidence.found)]
        known += [one.basis for one in evidence.attempts]
    scored = {(one.store, one.id, one.version): one for one in known}
    named = dict.fromkeys((each.store, each.id, each.version) for each in citations if each.role != "candidate")
    return tuple(
        scored.get((store, record_id, version)) or Source(store=store, id=record_id, version=version)
        for store, record_id, version in named
    )
