"""`counterpoint rotate keys`: a new signing key of capabilities."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import reject_url, stored_credentials
from counterpoint.cli.session import CommandSession


@command("keys", Panel.OPERATE, "counterpoint rotate keys")
def keys(
    session: CommandSession,
    now: Annotated[
        bool,
        typer.Option("--now", help="Refuse all earlier tokens at once, after a theft: waiting messages need a retry."),
    ] = False,
) -> None:
    """Sign capabilities with a new key from now on, and replace the memory service of a running stack.

    Tokens of the key before are accepted until they expire. Keys whose tokens have all expired are no longer accepted;
    they stay in secrets.json to recognise released values.
    """
    import os
    from datetime import UTC, datetime, timedelta

    from counterpoint.local.credentials import store_credentials
    from counterpoint.local.lock import is_locked
    from counterpoint.local.roll import roll
    from counterpoint.local.service import capability_life_s

    reject_url(session)
    folder, credentials = stored_credentials(session)
    life = timedelta(0) if now else timedelta(seconds=capability_life_s(os.environ))
    changed = credentials.with_new_key(datetime.now(UTC), life)
    store_credentials(folder / "secrets.json", changed)
    is_running = is_locked(folder)
    if is_running:
        roll(folder, ("memory",), migrate=False, progress=lambda stage: session.note(f"{stage} replaced"))
    accepted = [key.id for key in changed.signing_keys if key.accepted]
    result = {"signs": accepted[0], "accepted": accepted, "in_force": is_running}
    when = "now" if is_running else "at the next start"
    session.show(result, lambda: f"key {accepted[0]} signs {when}; accepted: {', '.join(map(str, accepted))}")
