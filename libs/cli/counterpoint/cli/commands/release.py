"""`counterpoint release`: release a value that the write filter refused."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.session import CommandSession


@command("release", Panel.OPERATE, "counterpoint release 4f1c09d2ab83e675 --reason 'a checksum' --project orders")
def release(
    session: CommandSession,
    fingerprint: Annotated[
        str, typer.Argument(metavar="FINGERPRINT", help="The value's fingerprint, from its refusal.")
    ],
    reason: Annotated[str | None, typer.Option("--reason", help="The reason.")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the release back.")] = False,
) -> None:
    """Release a value that the write filter refused by mistake. For persons with the role operate."""
    if (reason is None) != revoke:
        raise UsageError("give either --reason TEXT or --revoke")
    with session.connect() as api:
        if revoke:
            reply = api.delete(f"/v1/releases/{fingerprint}", project=session.project)
        else:
            body = {"fingerprint": fingerprint, "reason": reason}
            reply = api.post("/v1/releases", body, project=session.project)
    session.show(
        reply, lambda: f"{fingerprint}: {'no longer released' if revoke else 'released; send or retry the message now'}"
    )
