"""Weekly report of shadow mode: the number of proposals, and how many would have been right."""

from datetime import timedelta

from counterpoint.client import Memory, decide, record, send
from counterpoint.client.shadow import ShadowCounts, count_proposals, shadow_proposals
from counterpoint.proto.incident_settings import (
    SHADOW_REPORT_S,
    STORE,
    ShadowDue,
    StoredIncidentSettings,
    shadow_timer,
)
from counterpoint.proto.memory import Commit

REPORT = "shadow_report"


async def on_shadow_due(message: ShadowDue, memory: Memory) -> Commit:
    """Report the proposals in shadow mode as a decision, and set the timer of the next weekly report.

    Return an empty commit if shadow mode has ended or was restarted, since a timer may be due while it is cancelled.
    """
    item = await memory.get(STORE, message.settings_id)
    settings = record(item, StoredIncidentSettings) if item else None
    if settings is None or not settings.shadow or settings.shadow_since != message.since:
        return Commit()
    counts = count_proposals(await shadow_proposals(memory, job=settings.job, since=message.since))
    subject = f"job {settings.job.namespace}/{settings.job.name}" if settings.job else f"project {settings.project}"
    decision = decide(
        memory, "manager", REPORT, f"report the shadow of {subject}: {counts_text(counts)}", advice(counts)
    )
    week = timedelta(seconds=SHADOW_REPORT_S)
    timer = shadow_timer(message.settings_id)
    return Commit(messages=(send(decision), send(message, due_at=memory.now + week, timer=timer)))


def counts_text(counts: ShadowCounts) -> str:
    """Return the counts in words."""
    if not counts.proposed:
        return "no proposal was made in shadow"
    proposals = (
        f"{counts.proposed} proposal{'s' if counts.proposed > 1 else ''} not shown, {counts.explained} explained"
    )
    return f"{proposals}, {counts.right} right" + (f" ({counts.share:.0%})" if counts.share is not None else "")


def advice(counts: ShadowCounts) -> str:
    """Return advice based on the counts."""
    if counts.share is None:
        return "no fix was reported for an incident in shadow: report what fixed them to compare"
    return "proposals and reported fixes are compared by their words: `counterpoint shadow` lists the pairs"
