"""Changes of the starter pack in a project: which pages are sent, and the report."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.cli.lessons.starter import PackState, StarterPage

Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="SYSTEM", help="Only this system, such as airflow; repeatable.")
]


def change(
    session: CommandSession,
    only: Sequence[str],
    kept: Mapping["PackState", str],
    *,
    untrusted: bool = False,
    gone: bool = False,
) -> Exit:
    """Send the pages whose state is not in `kept`, and report on all; `kept` gives the reasons for the others."""
    from counterpoint.cli.ingest.upload import Upload
    from counterpoint.cli.lessons.starter import documents, starter_pages, states

    pages = starter_pages(only)
    upload = Upload(session.err, session.project, untrusted=untrusted)
    with session.connect() as api:
        known = states(api, session.project, pages)
        sent = [page for page in pages if known[page.system] not in kept]
        upload.send(api, documents(sent, gone=gone), len(sent))
    results = {each["source"]: each for each in upload.results}
    rows = [_row(page, results.get(page.source), kept.get(known[page.system])) for page in pages]
    session.show({"pages": rows}, partial(_table, rows))
    return Exit.FAILED if any(row["status"] in ("refused", "quarantined") for row in rows) else Exit.DONE


def _row(page: "StarterPage", result: Mapping[str, Any] | None, reason: str | None) -> dict[str, Any]:
    if result is None:
        return {"system": page.system, "source": page.source, "status": "kept", "reason": reason}
    row = {"system": page.system, "source": page.source, "status": result["status"], "reason": result.get("problem")}
    return {name: value for name, value in row.items() if value is not None}


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    from counterpoint.cli.render.table import table

    cells = [(row["system"], row["status"], row.get("reason") or "") for row in rows]
    return table(("system", "status", "reason"), cells, "no pages")
