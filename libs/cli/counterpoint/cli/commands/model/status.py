"""`counterpoint model status`: say whether the small model is installed."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession


@command("status", Panel.OPERATE, "counterpoint model status")
def status(session: CommandSession) -> None:
    """Say whether the small model is installed, and where."""
    from counterpoint.local.small_model.package import QWEN, model_folder

    folder = model_folder(QWEN)
    result = {"model": QWEN.name, "path": str(folder.model), "licence": QWEN.licence, "installed": folder.installed}
    hint = "" if folder.installed else ", `counterpoint model install` installs it"
    state = "installed" if folder.installed else "not installed"
    session.show(result, lambda: f"{QWEN.name}: {state}{hint}")
