"""Output on a terminal: prose is wrapped at its width, and a command stays on one line, so that it can be copied."""

import io

from counterpoint.cli.render.plain_console import PlainConsole
from counterpoint.cli.session import CommandSession

WIDTH = 40


def printed(text: str) -> list[str]:
    session = CommandSession(None, None, None, None, json=False)
    page = io.StringIO()
    session.__dict__["out"] = PlainConsole(file=page, force_terminal=True, color_system=None, width=WIDTH)
    session.show({}, lambda: text)
    return page.getvalue().splitlines()


def test_a_command_keeps_to_one_line() -> None:
    command = '    counterpoint override 01a21ddf-2ae5-74dc-9ab2 "INSTRUCTION" --reason "WHY" --project orders'
    assert printed(f"needs\n{command}") == ["needs", command]


def test_prose_is_wrapped_between_words() -> None:
    prose = "document: a runbook, an architecture note or an example about the import of orders"
    lines = printed(prose)
    assert " ".join(lines) == prose
    assert max(map(len, lines)) <= WIDTH
