"""Sources of a result: the items that it cites or rests on, without those only read."""

from collections.abc import Iterable

from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.policies.results import Result, StopResult
from counterpoint.proto.decisions import Source
from counterpoint.proto.findings import Citation


def sources_of(result: Result, evidence: Evidence) -> tuple[Source, ...]:
    """Return the sources of a result: its citations, or the failed attempts of a stop after repeated failures."""
    if isinstance(result, StopResult) and result.code == "repeated_failure":
        return tuple(one.as_source for one in evidence.attempts if one.weight < 0)
    return cited_sources(result.findings.citations, evidence)


def cited_sources(citations: Iterable[Citation], evidence: Evidence | None) -> tuple[Source, ...]:
    """Return the cited items as sources, each once with its score, without candidates."""
    known: list[Source] = []
    if evidence:
        known += [hit.as_source for hit in (*evidence.owners, *evidence.answers, *evidence.found)]
        known += [one.as_source for one in evidence.attempts]
    scored = {(one.store, one.id, one.version): one for one in known}
    named = dict.fromkeys((each.store, each.id, each.version) for each in citations if each.role != "candidate")
    return tuple(
        scored.get((store, record_id, version)) or Source(store=store, id=record_id, version=version)
        for store, record_id, version in named
    )
