"""`counterpoint explain`: explain refusals."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import Limit, check_id
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import when

RefusalId = Annotated[
    str | None, typer.Argument(metavar="[REFUSAL]", help="The refusal's id.", callback=check_id, show_default=False)
]


@command("explain", Panel.OPERATE, "counterpoint explain REFUSAL")
def explain(session: CommandSession, refusal: RefusalId = None, limit: Limit = 10) -> None:
    """Explain a refusal: the caller, the request, the rule and the missing right.

    Without an id list the latest refusals.
    """
    with session.connect() as api:
        if refusal is not None:
            reply = api.get(f"/v1/audit/refusals/{refusal}", project=session.project)
            session.show(reply, lambda: reply["text"])
            return
        listed = api.pages("/v1/audit/refusals", limit, project=session.project)
    session.show(
        listed,
        lambda: table(
            ("when", "service", "asked", "rule", "id"),
            [
                (when(each["at"]), *(each.get(name, "") for name in ("service", "asked", "rule", "id")))
                for each in listed["items"]
            ],
            "no refusals",
        ),
    )
