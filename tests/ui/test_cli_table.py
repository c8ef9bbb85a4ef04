"""Tables and trees on narrow terminals: nothing that is copied from them is cut."""

import io

import pytest
from rich.console import Console, RenderableType
from ui.cli_data import INCIDENT

from counterpoint.cli.render.table import table
from counterpoint.cli.render.tree import draw
from counterpoint.proto.titles import TITLE_CHARS

TASK = "019a9d3e-7b7e-7c3e-9d53-0a5b8f1f2a3b"
ABOUT = "fetch_orders failed: could not resolve ldap.internal"
WHEN = "2026-11-17 05:30:20"
LISTS = {
    "tasks": (
        ("submitted", "state", "kind", "task", "about"),
        [(WHEN, "input_required (documents)", "troubleshoot", TASK, ABOUT), (WHEN, "working", "plan", INCIDENT, ABOUT)],
    ),
    "attempts": (
        ("when", "outcome", "by", "tried", "task"),
        [(WHEN, "succeeded (reported)", "administrator", ABOUT, f"{TASK} #1")],
    ),
    "dead letters": (
        ("when", "state", "code", "subject", "id"),
        [(WHEN, "dead", "unknown_task", "intake.orders.outcome", TASK)],
    ),
}


def printed(shown: RenderableType, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(shown)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [72, 80, 100])
@pytest.mark.parametrize("name", LISTS)
def test_an_id_is_whole_on_a_narrow_terminal_and_its_title_is_shown(name: str, width: int) -> None:
    heads, rows = LISTS[name]
    lines = printed(table(heads, rows, "none"), width)
    ids = [cell.split(" #")[0] for row in rows for cell in row if cell.startswith((TASK, INCIDENT))]
    assert all(any(one in line for line in lines) for one in ids)
    for sentence in (cell for row in rows for head, cell in zip(heads, row, strict=True) if head in ("about", "tried")):
        assert any(sentence in line for line in lines)
    assert "subject" in lines[0].split() or "subject" not in heads
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)


def test_columns_are_dropped_in_order_and_only_when_needed() -> None:
    heads, rows = LISTS["tasks"]
    assert printed(table(heads, rows, "none"), 200)[0].split() == list(heads)
    assert printed(table(heads, rows, "none"), 92)[0].split() == ["submitted", "state", "kind", "task"]
    assert printed(table(heads, rows, "none"), 80)[0].split() == ["submitted", "state", "task"]
    assert printed(table(heads, rows, "none"), 72)[0].split() == ["state", "task"]


def test_a_title_is_never_broken_into_a_narrow_column() -> None:
    heads, rows = LISTS["tasks"]
    assert printed(table(heads, rows, "none"), 100)[1:5] == [
        f"{WHEN}  input_required (documents)  troubleshoot  {TASK}",
        f"    {ABOUT}",
        f"{WHEN}  working                     plan          {INCIDENT}",
        f"    {ABOUT}",
    ]


def test_a_sentence_is_no_longer_than_a_title() -> None:
    heads, rows = LISTS["attempts"]
    tried = f"{'Restart the resolver, ' * 5}then wait"
    (shown,) = printed(table(heads, [tuple(tried if cell == ABOUT else cell for cell in rows[0])], "none"), 300)[1:]
    said = shown[shown.index("Restart") : shown.index(" …") + 2]
    assert tried.startswith(said.removesuffix(" …"))
    assert TITLE_CHARS - len("resolver,  …") < len(said) <= TITLE_CHARS


def test_on_the_narrowest_terminal_an_id_goes_on_below() -> None:
    heads, rows = LISTS["attempts"]
    assert TASK in "".join("".join(printed(table(heads, rows, "none"), 30)[1:]).split())


def test_without_a_terminal_a_row_is_one_line() -> None:
    heads, rows = LISTS["tasks"]
    assert len(printed(table(heads, rows, "none"), 500)) == 1 + len(rows)


def test_a_line_that_is_too_long_goes_on_inside_the_tree() -> None:
    said = {"agent": "developer", "task_id": "t", "at": "2026-11-17T05:30:12Z", "kind": "search"}
    items = [
        said | {"action_id": "a1", "reasoning": "many words " * 20, "after": []},
        said | {"action_id": "a2", "reasoning": "few", "after": ["a1"]},
    ]
    lines = draw({"items": items}, 60).splitlines()
    assert max(map(len, lines)) <= 60
    below = lines[1 : lines.index("  2 developer: search")]
    assert len(below) > 1
    assert all(line.startswith("    │ ") for line in below)
    assert " ".join(line.removeprefix("    │ ") for line in below) == ("many words " * 20).strip()
    assert len(draw({"items": items}).splitlines()) == 4
