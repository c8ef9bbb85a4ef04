"""Texts of an issue: its title, its body, and our comments. Pure.

Texts of a task may hold anything. In code blocks nothing of them is executed, mentions anyone or loads anything; texts
outside of them are made inert.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from counterpoint.proto.tasks import ENDED, UNANSWERED, Task
from counterpoint.router.issues.marks import mark_of_issue
from counterpoint.router.issues.trackers import Tracker
from counterpoint.router.notify.summary import TEXT_CHARS, IncidentSummary, shortened

RESULT_CHARS, STEP_CHARS, STEPS = 16_000, 200, 50
"""Bounds of a plan: a body stays below the 65,536 characters that GitHub takes."""
STATUS_PREFIX = "counterpoint: "
_HEADING = re.compile(r" {0,3}#{1,6}\s+(.*)")
_STEPS = re.compile(r"((next|remaining|open)\s+)?(steps|to-?\s?dos?|tasks|action items)\W*", re.IGNORECASE)
_ITEM = re.compile(r"\s{0,3}(?:[-*+]|(\d{1,3})[.)])\s+(?:\[[ xX]\]\s+)?(\S.*)")
_NUMBER = re.compile(r"^\d{1,3}\. ")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~])")
_REFERENCE = re.compile(r"([@#!$%^&](?=\w))|(:(?=//))|\b(GH-|www)(?=[\d.])", re.IGNORECASE)
_INERT = "\u200b"
_STATUS_LABELS = {"escalated": "needs you", "approval": "needs you", "failed": "needs you", "proposed": "proposed"}
_HOW = """Say what fixed it in a comment that begins with one of these:

- `fixed by the proposal`
- `fixed by` and what you did, which is learned
- `fixed by itself`
- `not fixed` and what happened"""


@dataclass(frozen=True)
class PlanTodo:
    """A step of a plan that becomes an issue. `key` follows from its text, whatever its number in the plan."""

    key: str
    text: str

    def body(self, todo_id: str, plan: int) -> str:
        """The text that its issue is opened with. `plan` is the number of the plan's issue."""
        return f"{mark_of_issue(todo_id)}\n{block(self.text)}\n\nA step of the plan in #{plan}."


@dataclass(frozen=True)
class IssueContent:
    """Our side of an issue. `closes`: it is to be closed; `ends`: closing it would still end the task or say how it
    ended. `asks` is the question that the end leaves open, `adopted` the number of the issue that the task came from,
    `repository` the address of the repository for people.
    """

    title: str
    details: str
    labels: tuple[str, ...]
    assignees: tuple[str, ...]
    closes: bool
    ends: bool
    asks: str | None
    adopted: int | None
    repository: str
    todos: tuple[PlanTodo, ...] = ()

    def body(self, issue_id: str) -> str:
        """The text that an issue is opened with."""
        note = (
            "*Counterpoint opened this issue. Its later states are in one comment below; title and text are yours "
            "to edit, and are never changed again.*"
        )
        return f"{mark_of_issue(issue_id)}\n{self.details}\n\n{note}"

    @property
    def sha256(self) -> str:
        """The digest of what people are shown."""
        return hashlib.sha256(self.details.encode()).hexdigest()


def content_of(tracker: Tracker, task: Task, incident: IncidentSummary, before: int | None = None) -> IssueContent:
    """Return our side of the issue of a task. `before` is the number of the issue of the same job's last incident."""
    over = task.state in ENDED
    unanswered = task.resolution in UNANSWERED and not task.outcomes
    status = _STATUS_LABELS.get(incident.status)
    login = tracker.owners.get(incident.owner or "")
    asks = _question(tracker) if over and task.needs and not incident.withheld else None
    return IssueContent(
        title=" ".join(incident.title.split()) or f"Task {task.task_id}",
        details=_details(tracker, task, incident, before),
        labels=(*tracker.labels, *((STATUS_PREFIX + status,) if status else ())),
        assignees=(login,) if login else (),
        closes=tracker.close and _is_settled(task),
        ends=not over or unanswered,
        asks=asks,
        adopted=number_in(tracker, task.source_ref),
        repository=tracker.repository_url,
        todos=() if incident.withheld else _todos(tracker, task),
    )


def todo_list(numbers: Iterable[int]) -> str:
    """Return the comment that lists the issues of a plan's steps, whose state forges show beside the number."""
    return "\n".join(["**To do**", "", *(f"- [ ] #{number}" for number in numbers)])


def number_in(tracker: Tracker, url: str | None) -> int | None:
    """Return the number of the issue of a tracker that an address names."""
    found = re.fullmatch(r"([^?#\s]+?)(?:/-)?/(?:issues|work_items)/(\d{1,12})/?(?:[?#].*)?", url or "")
    return int(found.group(2)) if found and tracker.is_of(found.group(1)) else None


def plan_steps(text: str) -> tuple[str, ...]:
    """Return the items of the lists below headings such as "Steps" or "TODO", numbered as they are."""
    found, below, fenced = list[str](), False, False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif fenced:
            continue
        elif heading := _HEADING.fullmatch(line):
            below = bool(_STEPS.fullmatch(heading.group(1).strip(" \t#")))
        elif below and (item := _ITEM.fullmatch(line)):
            number = f"{item.group(1)}. " if item.group(1) else ""
            found.append(shortened(number + item.group(2), STEP_CHARS))
    return tuple(found[:STEPS])


def inert(text: str) -> str:
    """Return a text as one line of markdown that has no markup, mentions nobody and refers to nothing."""
    line = " ".join(text.split())
    line = _REFERENCE.sub(lambda found: f"{found.group()}{_INERT}", line)
    # A forge takes a slash, a number or a sign at the beginning of a line for a command or a list.
    return re.sub(r"^(?=[/\d+=.#-])", _INERT, _SPECIAL.sub(r"\\\1", line))


def code(text: str) -> str:
    """Return a text in a code span."""
    line = " ".join(text.split())
    fence = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if line else ""


def block(text: str) -> str:
    """Return a text in a code block."""
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _is_settled(task: Task) -> bool:
    """Whether nothing is left to do: a failed task, a proposal that nobody has tried and a plan leave the work open."""
    if task.state == "completed":
        return task.kind != "plan" and (task.resolution != "proposed" or bool(task.outcomes))
    return task.state == "cancelled"


def _details(tracker: Tracker, task: Task, incident: IncidentSummary, before: int | None) -> str:
    plan = _plan(task) if not incident.withheld and task.kind == "plan" else None
    facts = [f"- {name}: {code(value)}" for name, value in _facts(incident)]
    facts += [f"- the same job before: #{before}"] if before else []
    parts = [f"**{inert(incident.headline)}**", "\n".join(facts)]
    if incident.error:
        parts += ["**Error**", block(incident.error)]
    if plan:
        steps = _steps(task, plan) if tracker.todos == "list" else ()
        parts += ["**To do**", "\n".join(f"- [ ] {inert(step)}" for step in steps)] if steps else []
        parts += ["**Plan**", block(plan)]
    elif not incident.withheld and incident.is_over and task.result:
        parts += ["**Result**", block(shortened(task.result, TEXT_CHARS))]
    elif incident.proposal:
        parts += ["**Proposal**", block(incident.proposal)]
    if incident.needs:
        parts += ["**Needed**", "\n".join(f"- {code(need)}" for need in incident.needs)]
    if incident.impact and not incident.is_over:
        parts += ["**Will be late**", code(incident.impact)]
    if tracker.is_commanded and not incident.is_over and task.kind != "plan":
        parts.append(_HOW)
    return "\n\n".join(part for part in parts if part)


def _steps(task: Task, plan: str) -> tuple[str, ...]:
    return plan_steps(plan) or tuple(task.findings.next_steps if task.findings else ())[:STEPS]


def _todos(tracker: Tracker, task: Task) -> tuple[PlanTodo, ...]:
    """Return the steps of a finished plan that become issues, each once."""
    plan = _plan(task) if tracker.todos == "issues" and task.kind == "plan" and task.state == "completed" else None
    found = dict[str, PlanTodo]()
    for step in _steps(task, plan) if plan else ():
        text = shortened(_NUMBER.sub("", step), STEP_CHARS)
        key = hashlib.sha256(" ".join(text.split()).lower().encode()).hexdigest()[:16]
        found.setdefault(key, PlanTodo(key, text))
    return tuple(found.values())


def _facts(incident: IncidentSummary) -> tuple[tuple[str, str], ...]:
    attempt = (("attempt", str(incident.attempt)),) if incident.attempt else ()
    return (("task", incident.task_id), *incident.facts, *attempt)


def _plan(task: Task) -> str | None:
    text = task.result or task.proposal
    return shortened(text, RESULT_CHARS) if text else None


def _question(tracker: Tracker) -> str:
    if not tracker.is_commanded:
        return "It is over, and nobody has said what fixed it. What is reported is the next proposal."
    return f"It is over, and nobody has said what fixed it. What is reported is the next proposal.\n\n{_HOW}"
