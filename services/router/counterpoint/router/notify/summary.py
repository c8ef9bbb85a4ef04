"""The summary of an incident for people: what failed, what is proposed, who is hit. Pure.

It is a function of the task's record alone, so it does not depend on the order of events.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from counterpoint.card.content import task_title
from counterpoint.proto.approvals import Approval
from counterpoint.proto.messages import ProjectName, Shape, Time
from counterpoint.proto.tasks import ENDED, DatasetRef, Priority, Task

Status = Literal["working", "proposed", "escalated", "approval", "resolved", "failed", "cancelled"]
Audience = Literal["all", "owner", "downstream"]
SEVERITIES: tuple[Priority, ...] = get_args(Priority)
OVER: frozenset[str] = frozenset({"resolved", "failed", "cancelled"})
TITLE_CHARS, ERROR_CHARS, TEXT_CHARS, LIST_ITEMS = 200, 600, 1500, 10
_WORDS: Mapping[Status, str] = {
    "working": "is being worked on",
    "proposed": "has a proposal",
    "escalated": "needs you",
    "approval": "waits for an approval",
    "resolved": "is resolved",
    "failed": "could not be resolved",
    "cancelled": "was cancelled",
}
_STATUS: Mapping[str, Status] = {"completed": "resolved", "failed": "failed", "cancelled": "cancelled"}


class LateItem(Shape):
    """A job or dataset downstream, and its owner."""

    name: str
    owner: str | None = None


class ShownText(Shape):
    """The text of an approval as far as it is shown. Only a `whole` one may be decided on where it is shown."""

    approval_id: str
    artifact: str
    artifact_sha256: str
    whole: bool


class IncidentSummary(Shape):
    """The content of a message about one incident. `late` lists what waits for the failed job, of `late_count` in all.

    `needs` of one that is over are the question what fixed it. `occurrence` counts this failure since `first_at`.
    `withheld`: the texts are above the receiver's clearance.
    """

    task_id: str
    project: ProjectName
    kind: str
    status: Status
    severity: str
    title: str
    job: str | None = None
    dataset: DatasetRef | None = None
    owner: str | None = None
    error: str | None = None
    proposal: str | None = None
    needs: tuple[str, ...] = ()
    approval: ShownText | None = None
    attempt: int | None = None
    confidence: str | None = None
    late: tuple[LateItem, ...] = ()
    late_count: int = 0
    affected_count: int = 0
    audience: Audience = "all"
    occurrence: int = 1
    first_at: Time
    opened_at: Time
    withheld: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the incident has ended."""
        return self.status in OVER

    @property
    def is_unexplained(self) -> bool:
        """Whether it is over and nobody has said what fixed it."""
        return self.is_over and bool(self.needs)

    @property
    def headline(self) -> str:
        """The title and the state in words; to owners downstream also that theirs will be late."""
        late = ", and makes yours late" if self.audience == "downstream" and not self.is_over else ""
        return f"{self.title} {_WORDS[self.status]}{late}"

    @property
    def recurrence(self) -> str | None:
        """Return "3rd of this in 20 days", None for the first."""
        if self.occurrence < 2:
            return None
        days = max(1, -(-int((self.opened_at - self.first_at).total_seconds()) // 86_400))
        return f"{ordinal(self.occurrence)} of this in {days} day{'s' if days > 1 else ''}"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Names and values of the short facts, in the order to show."""
        found = [
            ("job", self.job),
            ("owner", self.owner),
            ("severity", self.severity),
            ("confidence", self.confidence),
            ("also failed", str(self.affected_count) if self.affected_count else None),
            ("project", self.project),
        ]
        return tuple((name, value) for name, value in found if value)

    @property
    def impact(self) -> str | None:
        """The names and owners of what will be late; None if nothing is downstream."""
        if not self.late:
            return None
        named = [item.name + (f" ({item.owner})" if item.owner else "") for item in self.late]
        more = self.late_count - len(named)
        return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def status_of(task: Task) -> Status:
    """Return the state of an incident from its task's record."""
    if task.state in _STATUS:
        return _STATUS[task.state]
    if task.approval is not None or task.waiting_for == "approval":
        return "approval"
    if task.waiting_for == "outcome" and task.proposal:
        return "proposed"
    return "escalated" if task.escalation is not None else "working"


def summary_of(
    task: Task,
    facts: Mapping[str, Any],
    *,
    audience: Audience = "all",
    owners: Sequence[str] = (),
    approval: Approval | None = None,
    withheld: bool = False,
) -> IncidentSummary:
    """Return the summary of a task, with the live `facts` of its incident.

    Owners downstream see what is theirs. Texts above the clearance are left out.
    """
    context = {**(task.context or {}), **facts}
    downstream = task.findings.downstream if task.findings else ()
    if audience == "downstream":
        downstream = tuple(row for row in downstream if row.owner in owners)
    job = task.target.job if task.target else None
    affected, owner = context.get("affected_count"), context.get("owner")
    return IncidentSummary(
        task_id=task.task_id,
        project=task.project,
        kind=task.kind,
        status=status_of(task),
        severity=task.priority,
        title=f"Task {task.task_id}" if withheld else shortened(task_title(task), TITLE_CHARS),
        job=shortened(job.name, TITLE_CHARS) if job else None,
        dataset=task.target.dataset if task.target else None,
        owner=owner if isinstance(owner, str) else None,
        error=None if withheld else shortened(task.error_message, ERROR_CHARS),
        proposal=None if withheld else shortened(task.proposal or task.result, TEXT_CHARS),
        needs=() if withheld else needs_of(task),
        approval=None if withheld or approval is None else shown_text(approval),
        attempt=_attempt_in_question(task),
        confidence=task.confidence.band if task.confidence else None,
        late=tuple(LateItem(name=shortened(row.name, TITLE_CHARS), owner=row.owner) for row in downstream[:LIST_ITEMS]),
        late_count=len(downstream),
        affected_count=affected if isinstance(affected, int) else 0,
        audience=audience,
        first_at=task.submitted_at,
        opened_at=task.submitted_at,
        withheld=withheld,
    )


def _attempt_in_question(task: Task) -> int | None:
    """Return the attempt of a task; after its end only one whose success was observed, and not yet reported."""
    if task.state in ENDED and task.outcomes.get(str(task.attempt), {}).get("evidence") != "observed":
        return None
    return task.attempt


def shown_text(approval: Approval) -> ShownText:
    """Return the text of an approval, shortened if it is long."""
    artifact = shortened(approval.artifact, TEXT_CHARS)
    return ShownText(
        approval_id=approval.approval_id,
        artifact=artifact,
        artifact_sha256=approval.artifact_sha256,
        whole=artifact == approval.artifact.strip(),
    )


def needs_of(task: Task) -> tuple[str, ...]:
    """Return what a person has to supply, with the command that does it; after the end the cause alone."""
    if task.state in ENDED:
        needs = tuple(need for need in task.needs if need.kind == "outcome")
    else:
        needs = (task.escalation.needs if task.escalation else ()) or task.needs
    return tuple(shortened(f"{need.what} ({need.how})", ERROR_CHARS) for need in needs[:LIST_ITEMS])


def owners_of(task: Task, facts: Mapping[str, Any]) -> tuple[str | None, frozenset[str]]:
    """Return the owner of the failed job, and the owners of what is downstream of it."""
    owner = {**(task.context or {}), **facts}.get("owner")
    downstream = task.findings.downstream if task.findings else ()
    return owner if isinstance(owner, str) else None, frozenset(row.owner for row in downstream if row.owner)


def severity_level(severity: str) -> int:
    """Return the position of a severity; that of `normal` for an unknown one."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else SEVERITIES.index("normal")


def shortened(text: str | None, limit: int) -> str:
    """Return a text of at most `limit` characters, without control characters."""
    clean = "".join(c for c in text or "" if c.isprintable() or c in "\n\t").strip()
    return clean if len(clean) <= limit else clean[: limit - 1].rstrip() + "…"


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
