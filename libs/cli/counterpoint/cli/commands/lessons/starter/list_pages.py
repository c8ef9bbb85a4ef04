"""`counterpoint lessons starter list`: list the starter pack."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.lessons.starter.change import Only
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession


@command("list", Panel.WORK, "counterpoint lessons starter list --project orders")
def list_pages(session: CommandSession, only: Only = None) -> None:
    """List the runbooks of the starter pack, their files, and whether the project has installed or accepted them."""
    from counterpoint.cli.lessons.starter import starter_pages, states

    pages = starter_pages(only or ())
    with session.connect() as api:
        known = states(api, session.project, pages)
    rows = [
        {
            "system": page.system,
            "state": known[page.system].value,
            "sections": page.sections,
            "source": page.source,
            "file": str(page.path),
        }
        for page in pages
    ]
    cells = [(str(row["system"]), str(row["state"]), str(row["sections"]), str(row["file"])) for row in rows]
    session.show({"pages": rows}, lambda: table(("system", "state", "sections", "file"), cells, "no pages"))
