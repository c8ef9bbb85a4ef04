"""Sections about the status of a task: its state, the confidence, the input needed, and how to report."""

from collections.abc import Iterator

from counterpoint.card.history import is_offer
from counterpoint.card.model import CardSection, Line, section
from counterpoint.proto.approvals import PendingApproval
from counterpoint.proto.decisions import Confidence, ConfidenceTerms
from counterpoint.proto.tasks import Need, Task
from counterpoint.proto.words import quantity, when

_BANDS = {"high": "high", "medium": "medium: check it before you act", "low": "low: not enough evidence"}


def state(task: Task) -> str:
    """Return the state of a task in words."""
    match task.state, task.waiting_for:
        case "input_required", "outcome":
            return f"attempt {task.attempt} waits for its outcome"
        case "input_required", waiting_for:
            prefix = f"escalated to {task.escalation.to} ({task.escalation.code}), " if task.escalation else ""
            return f"{prefix}waits for {waiting_for}"
        case "working", _:
            return f"in progress, attempt {task.attempt or 1}"
        case "completed", _:
            return f"completed ({task.resolution})"
        case ended, _:
            return ended


def trust(task: Task, verbose: bool) -> CardSection:
    """Return the confidence in words with its evidence; with `verbose` the numbers."""
    return section("confidence", _confidence(task.confidence, task, verbose) if task.confidence else ())


def needs(task: Task) -> CardSection:
    """Return the input needed, with the command that supplies it."""
    open_needs: tuple[Need, ...] = task.needs
    if task.state == "input_required" and task.escalation:
        open_needs = (*task.escalation.needs, *open_needs)
    elif task.state == "input_required" and task.approval:
        open_needs = (_decision(task, task.approval), *open_needs)
    return section("needs", [line for need in open_needs for line in (f"{need.kind}: {need.what}", f"    {need.how}")])


def _decision(task: Task, approval: PendingApproval) -> Need:
    """Return the need of a person who decides an approval."""
    what = f"a person decides on the {approval.category} before {when(approval.expires_at)} UTC"
    return Need(
        kind="approval", what=what, how=f"counterpoint approvals --task {task.task_id} --project {task.project}"
    )


def report(task: Task) -> CardSection:
    """Return how to report the outcome of the attempt; of an escalated failure, the fix that a person found."""
    command, project = f"counterpoint outcome {task.task_id} succeeded", f"--project {task.project}"
    escalated = task.state == "input_required" and task.escalation is not None and task.kind == "troubleshoot"
    fixed = f'{command} --note "WHAT FIXED IT" {project}'
    if task.waiting_for == "outcome" and task.shadow and task.override is None:
        return section("report", [fixed, "once it works again: the note is learned as the fix"])
    if task.waiting_for == "outcome" or (escalated and task.proposal):
        number = f"--attempt {task.attempt} " if task.waiting_for == "outcome" else ""
        other = 'or failed, or partial; add --by something-else --note "…" if something else fixed it'
        return section("report", [f"{command} {number}{project}", other])
    if escalated:
        return section("report", [fixed, "once it works again: the note is proposed for the next such failure"])
    return section("report", ())


def searched(task: Task) -> CardSection:
    """Return the search queries."""
    return section("searched", task.escalation.searched_for if task.escalation else ())


def _confidence(known: Confidence, task: Task, verbose: bool) -> Iterator[Line]:
    quoted = known.terms is not None and known.band == "low" and _is_quoted(task)
    confidence = _BANDS.get(known.band, known.band)
    if quoted:
        confidence = f"{known.band}: the quoted section is probably right, but little else supports it"
    evidence: tuple[str, ...] = ()
    if task.kind != "question" and known.terms is not None:
        evidence = tuple(_evidence(known.terms, quoted))
    yield "; ".join((confidence, ", ".join(evidence))) if evidence else confidence
    if not verbose:
        return
    yield f"{known.score:.2f}, {known.band}"
    if terms := known.terms:
        exists = terms.provider_exists
        provider = f"{exists}, counts as yes" if isinstance(exists, str) else _word(exists)
        yield (
            f"0.4 × similarity {terms.rag_similarity:.2f} + 0.3 × {min(terms.rag_hits, 5)}/5 sources"
            f" + 0.2 × provider ({provider}) + 0.1 × similar success ({_word(terms.similar_dag)})"
        )


def _is_quoted(task: Task) -> bool:
    """Return whether the proposal quotes a document that is likely to be right."""
    if task.findings is None or task.findings.likelihood is None or is_offer(task):
        return False
    return bool(task.proposal) and any(each.store == "chunks" for each in task.findings.citations)


def _evidence(terms: ConfidenceTerms, quoted: bool) -> Iterator[str]:
    if terms.rag_hits:
        fit = terms.rag_similarity
        match = "closely" if fit >= 0.8 else "well" if fit >= 0.6 else "partly"
        yield f"{quantity(terms.rag_hits, 'trusted source')} about it, the best matches {match}"
    elif not quoted:
        yield "no trusted source about it"
    if terms.provider_exists is False:
        yield "the provider index lacks a system that it names"
    elif terms.provider_exists is True:
        yield "the provider index has every system that it names"
    yield "a similar attempt has worked before" if terms.similar_dag else "no similar attempt is known to have worked"


def _word(value: bool) -> str:
    return "yes" if value else "no"
