"""The weekly report of a shadow: how many proposals it would have made, and how many of them would have been right."""

from datetime import timedelta

from counterpoint.client import Memory, decide, record, send
from counterpoint.client.shadow import ShadowCounts, counted, unshown_proposals
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
    """Report what the shadow would have said, as a decision, and have the next report come due in a week.

    Nothing for a shadow that has ended or begun anew: a timer may come due while it is cancelled.
    """
    item = await memory.get(STORE, message.settings_id)
    held = record(item, StoredIncidentSettings) if item else None
    if held is None or not held.shadow or held.shadow_since != message.since:
        return Commit()
    counts = counted(await unshown_proposals(memory, job=held.job, since=message.since))
    of = f"job {held.job.namespace}/{held.job.name}" if held.job else f"project {held.project}"
    decision = decide(memory, "manager", REPORT, f"report the shadow of {of}: {counts_text(counts)}", advice(counts))
    week = timedelta(seconds=SHADOW_REPORT_S)
    timer = shadow_timer(message.settings_id)
    return Commit(messages=(send(decision), send(message, due_at=memory.now + week, timer=timer)))


def counts_text(counts: ShadowCounts) -> str:
    """The counts in words."""
    if not counts.proposed:
        return "no proposal was made in shadow"
    many = f"{counts.proposed} proposal{'s' if counts.proposed > 1 else ''} not shown, {counts.explained} explained"
    return f"{many}, {counts.right} right" + (f" ({counts.share:.0%})" if counts.share is not None else "")


def advice(counts: ShadowCounts) -> str:
    """Advice on what the counts say."""
    if counts.share is None:
        return "no fix was reported for an incident in shadow: report what fixed them to compare"
    return "proposals and reported fixes are compared by their words: `counterpoint shadow` lists the pairs"
