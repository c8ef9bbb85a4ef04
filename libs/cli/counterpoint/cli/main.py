"""The `counterpoint` command. What a command needs is imported when it runs, so that help and completion are quick."""

import typer

from counterpoint.cli import (
    audit,
    bench,
    dead_letters,
    demo,
    entities,
    erase,
    incident_settings,
    ingest,
    links,
    look,
    operate,
    principals,
    projections,
    reembed,
    releases,
    revocations,
    scan,
    takeback,
    watch,
    work,
)
from counterpoint.cli.command import Panel

app = typer.Typer(
    name="counterpoint",
    help="Remembers how things broke and how they were fixed, and puts a team of agents to work on it.",
    epilog=(
        "Exit codes: 0 done, 1 failed, 2 usage, 3 not reachable, 4 waiting for input. Without --url or --data-dir a "
        "command asks COUNTERPOINT_URL, COUNTERPOINT_DATA_DIR, or the nearest .counterpoint folder upwards."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (work, links, ingest, look, entities, watch):
    app.add_typer(part.app)
app.add_typer(dead_letters.app, name="dead-letters", rich_help_panel=Panel.LOOK)
for part in (
    operate,
    incident_settings,
    audit,
    takeback,
    erase,
    releases,
    revocations,
    scan,
    projections,
    reembed,
    bench,
    demo,
):
    app.add_typer(part.app)
app.add_typer(principals.app, name="principal", rich_help_panel=Panel.OPERATE)


if __name__ == "__main__":
    app()
