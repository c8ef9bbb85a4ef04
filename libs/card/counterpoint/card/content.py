"""Content of a task's card, section by section in the order in which it is read."""

from collections.abc import Iterator

from counterpoint.card.failure import affected, also_open, change, failure, links, merged
from counterpoint.card.history import earlier_attempts, recognition
from counterpoint.card.impact import impact
from counterpoint.card.model import CardSection, TaskCard, section
from counterpoint.card.printable import printable
from counterpoint.card.prose import caveats, documents, next_steps, outdated, proposal, quotes
from counterpoint.card.standing import needs, report, searched, state, trust
from counterpoint.proto.tasks import Task
from counterpoint.proto.titles import TITLE_CHARS, title_of


def card(task: Task, *, verbose: bool = False) -> TaskCard:
    """Return the card of a task, whatever its state.

    `verbose` adds the numbers, the search queries, and the rows and lines omitted otherwise.
    """
    return TaskCard(
        title=printable(task_title(task))[:TITLE_CHARS],
        subtitles=(f"{task.kind}, {state(task)}", f"{task.task_id} in project {task.project}"),
        sections=tuple(_clear(each) for each in _sections(task, verbose) if each.lines),
    )


def task_title(task: Task) -> str:
    """Return the title of a task, as its card, lists and messages show it."""
    job = task.target.job.name if task.target and task.target.job else None
    return title_of(task.description, task.title, task.error_message, job)


def _clear(each: CardSection) -> CardSection:
    lines = (tuple(map(printable, line)) if isinstance(line, tuple) else printable(line) for line in each.lines)
    return section(each.label, lines, each.style)


def _sections(task: Task, verbose: bool) -> Iterator[CardSection]:
    if task.kind == "question":
        question = task.description.strip()
        yield section("asked", [question] if question != task_title(task) else [])
    else:
        yield from failure(task, verbose)
        yield also_open(task)
        yield recognition(task, verbose)
        yield documents(task)
    yield outdated(task)
    yield proposal(task)
    yield needs(task)
    yield next_steps(task)
    yield impact(task, verbose)
    yield change(task, verbose)
    yield affected(task, verbose)
    yield merged(task)
    yield earlier_attempts(task, verbose)
    yield quotes(task, verbose)
    yield caveats(task, verbose)
    yield trust(task, verbose)
    yield links(task)
    if verbose:
        yield searched(task)
    yield report(task)
    if task.reason:
        yield section("reason", [task.reason])
