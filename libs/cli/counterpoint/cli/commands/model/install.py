"""`counterpoint model install`: install the small model."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession


@command("install", Panel.OPERATE, "counterpoint model install")
def install(session: CommandSession) -> None:
    """Download the small model and its runtime (1.1 GB), and verify it. An interrupted install continues."""
    from counterpoint.local.small_model.install import install as install_model
    from counterpoint.local.small_model.package import QWEN, model_folder

    folder = model_folder(QWEN)
    new = install_model(QWEN, folder, session.note)
    result = {"model": QWEN.name, "path": str(folder.model), "licence": QWEN.licence, "installed": new}
    state = "installed" if new else "is already installed"
    session.show(result, lambda: f"{QWEN.name} {state}: {folder.model}\n`counterpoint model serve` runs it")
