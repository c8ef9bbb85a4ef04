"""Sources of a result: the items that it cites or rests on, without those only read."""

from collections.abc import Iterable

from counterpoint.developer.evidence.attempts import EarlierAttempt
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.relevance import Hit
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
    read: tuple[Hit | EarlierAttempt, ...] = ()
    if evidence:
        read = (*evidence.owners, *evidence.answers, *evidence.found, *evidence.attempts)
    known = {(one.item.store, one.item.id, one.item.version): one for one in read}
    named = dict.fromkeys((each.store, each.id, each.version) for each in citations if each.role != "candidate")
    return tuple(
        known[item].as_source if item in known else Source(store=item[0], id=item[1], version=item[2]) for item in named
    )
