"""`counterpoint roll`: replace the services of a running stack."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import reject_url
from counterpoint.cli.session import CommandSession


@command("roll", Panel.OPERATE, "counterpoint roll")
def roll(session: CommandSession) -> None:
    """Migrate the database and replace the services one by one by those that are installed now.

    The stack goes on: clients wait, or get 503 with Retry-After. The engines and the supervisor stay as they are until
    the next `counterpoint up`.
    """
    from time import monotonic

    from counterpoint.local import roll as local

    reject_url(session)
    began = monotonic()
    stages = local.roll(session.place.folder(), progress=lambda stage: session.note(f"{stage} done"))
    result = {"stages": list(stages), "seconds": round(monotonic() - began, 1)}
    session.show(result, lambda: f"replaced in {result['seconds']} s: {', '.join(stages)}")
