"""`counterpoint model remove`: delete the small model."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession


@command("remove", Panel.OPERATE, "counterpoint model remove")
def remove(session: CommandSession) -> None:
    """Delete the small model and its runtime."""
    from counterpoint.local.small_model.install import remove as remove_model
    from counterpoint.local.small_model.package import QWEN, model_folder

    removed = remove_model(model_folder(QWEN))
    session.show({"model": QWEN.name, "removed": removed}, lambda: "removed" if removed else "was not installed")
