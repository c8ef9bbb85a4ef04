"""`counterpoint lessons export`: write one page of markdown per lesson."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.session import CommandSession

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the pages.", file_okay=False)]


@command("export", Panel.WORK, "counterpoint lessons export lessons/ --project orders")
def export(
    session: CommandSession,
    directory: Directory,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only lessons that changed since then.")
    ] = None,
) -> Exit:
    """Write a page for each task that has ended with an outcome, and for each past incident.

    A page that a person edited and nobody imported yet is kept, and no page is deleted.
    """
    from counterpoint.cli.ingest.incident_files import parse_time
    from counterpoint.cli.lessons.export import export_to
    from counterpoint.cli.lessons.fetch import fetch_lessons
    from counterpoint.cli.lessons.folder import read_folder

    moment = parse_time(since) if since else None
    if since and moment is None:
        raise UsageError(f"--since must be a time such as 2026-11-20 or 2026-11-20T17:30:00Z, not {since}")
    folder = read_folder(directory, missing_ok=True)
    with session.connect() as api:
        known = fetch_lessons(api, session.project)
    report = export_to(folder, known, moment)
    for problem in report["problems"]:
        session.note(problem)
    for name in report["without_lesson"]:
        session.note(f"{name}: its lesson is not in the project; the page is kept")
    session.show(report, lambda: _summary(report, directory))
    return Exit.FAILED if report["problems"] else Exit.DONE


def _summary(report: dict[str, Any], directory: Path) -> str:
    from counterpoint.proto.words import quantity

    counts = Counter(each["status"] for each in report["pages"])
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
    return f"{quantity(len(report['pages']), 'lesson')} in {directory}: {statuses}"
