"""The commands of the contract, their options and their help."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from counterpoint.cli.main import app

CONTRACT = {
    "submit",
    "why",
    "lineage",
    "show",
    "demo",
    "verify",
    "explain",
    "principal",
    "down",
    "status",
    "outcome",
    "attempts",
    "override",
    "ingest",
    "search",
    "cancel",
    "dead-letters",
    "watch",
    "ask",
    "up",
    "escalations",
    "tasks",
    "blast-radius",
    "cypher",
    "rebuild",
    "reembed",
}


def commands() -> dict[str, Any]:
    """Every command by its words."""
    return dict(_below("", get_command(app)))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    for name, each in command.commands.items():
        if getattr(each, "commands", None):
            yield from _below(f"{words}{name} ", each)
        else:
            yield f"{words}{name}", each


def test_every_command_of_the_contract_is_there_in_a_panel() -> None:
    top = get_command(app).commands  # type: ignore[attr-defined]
    assert set(top) >= CONTRACT
    assert {command.rich_help_panel for command in top.values()} == {"Work", "Look", "Operate"}


def test_every_command_takes_the_same_options_and_ends_its_help_with_an_example() -> None:
    for words, command in commands().items():
        options = {name for parameter in command.params for name in parameter.opts}
        assert {"--url", "--token", "--data-dir", "--project", "--json"} <= options, words
        assert command.epilog.startswith(f"Example: counterpoint {words}"), words
        assert command.help, words


def test_help_loads_no_http_client_and_no_models() -> None:
    program = (
        "import sys; from counterpoint.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'httpx', 'pydantic', 'asyncpg', 'nats', 'yaml', 'structlog'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"
