"""`counterpoint lessons import`: import pages of lessons."""

from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.lessons.export_pages import Directory
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession

_SHOWN = 10


@command("import", Panel.WORK, "counterpoint lessons import lessons/ --project orders --dry-run")
def import_(
    session: CommandSession,
    directory: Directory,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be imported, and import nothing.")
    ] = False,
) -> Exit:
    """Import the pages of a folder. What is known already is not imported again.

    An attempt that was edited on its page becomes a new attempt under your name; nothing is replaced or deleted.
    """
    from counterpoint.cli.lessons.fetch import fetch_lessons
    from counterpoint.cli.lessons.folder import read_folder
    from counterpoint.cli.lessons.importing import import_from

    folder = read_folder(directory)
    with session.connect() as api:
        known = fetch_lessons(api, session.project)
        report = import_from(folder, known, None if dry_run else api, session.project)
    for each in report["problems"]:
        session.note(f"{each['file']} line {each['line']}: {each['field']} {each['problem']}")
    for each in report["attempts"]:
        if each["status"] in ("refused", "outdated"):
            session.note(f"{each['status']} {each['file']} attempt {each['attempt']}: {each['problem']}")
    for lesson in report["without_page"][:_SHOWN]:
        session.note(f"lesson {lesson} has no page in {directory}; it is kept")
    if (more := len(report["without_page"]) - _SHOWN) > 0:
        session.note(f"and {more} more lessons have no page")
    session.show(report, lambda: _summary(report))
    refused = any(each["status"] == "refused" for each in report["attempts"])
    return Exit.FAILED if report["problems"] or refused else Exit.DONE


def _summary(report: dict[str, Any]) -> str:
    from collections import Counter

    from counterpoint.proto.words import quantity

    counts = Counter(each["status"] for each in report["attempts"])
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
    broken = f"; {quantity(len(report['problems']), 'page')} not read" if report["problems"] else ""
    begin = "dry run, nothing imported: " if report["dry_run"] else ""
    attempts = quantity(len(report["attempts"]), "attempt")
    return f"{begin}{quantity(report['pages'], 'page')}, {attempts}: {statuses}{broken}"
