"""`counterpoint search`: search documents."""

import shlex
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import AsOf
from counterpoint.cli.projects import note_others
from counterpoint.cli.session import CommandSession

_TRUSTED = 2
"""Integrity level of a trusted item; lower ones are marked."""


@command("search", Panel.LOOK, 'counterpoint search "resolver timed out" -n 5')
def search(
    session: CommandSession,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to search for.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="Maximum number of results.")] = 10,
    vector_weight: Annotated[
        float | None,
        typer.Option(
            "--vector-weight",
            min=0,
            max=1,
            help="1 searches by meaning only, 0 by words only. Default: by document type.",
        ),
    ] = None,
    also: Annotated[
        list[str] | None, typer.Option("--also", help="Another wording or a part of the question; repeatable.")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only texts of this type.")] = None,
    under: Annotated[
        str | None, typer.Option("--under", help="Only sources with this prefix, such as a folder.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only documents written since.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only documents written before.")] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="NAME=VALUE", help="Only documents with this metadata; repeatable."),
    ] = None,
    neighbours: Annotated[int, typer.Option("--neighbours", min=0, max=3, help="Passages around each result.")] = 0,
    as_of: AsOf = None,
) -> None:
    """Search documents by words and by meaning."""
    if not text.strip():
        raise UsageError("the text is empty")
    where: dict[str, Any] = {"type": type_} if type_ else {}
    if metadata:
        where["metadata"] = dict(_pair(each) for each in metadata)
    body = {
        "text": text, "k": limit, "vector_weight": vector_weight, "also": also, "where": where or None, "under": under,
        "since": since, "until": until, "neighbours": neighbours or None, "as_of": as_of,
    }  # fmt: skip
    with session.connect() as api:
        reply = api.post("/v1/search", body, project=session.project)
        if not reply["items"]:
            note_others(session, api, shlex.join(["search", text]))
    session.show(reply, lambda: "\n\n".join(_passage(item) for item in reply["items"]) or "nothing found")


def _passage(item: dict[str, Any]) -> str:
    where = f"{item['source']}, characters {item['start']} to {item['end']}"
    vouched = "" if item["integrity"] >= _TRUSTED else ", not from a trusted source"
    return f"{item['score']:.2f}  {where}{vouched}\n{item['text'].strip()}"


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise UsageError(f"metadata is NAME=VALUE, not {given}")
    return name, value
