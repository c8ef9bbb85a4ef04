"""Error codes: one enum, each documented, each used, none spelled elsewhere."""

import ast
from collections.abc import Iterator

import pytest
from contract.pages import ROOT, table
from contract.product import sources, walked

from counterpoint.proto.errors import ErrorCode

pytestmark = pytest.mark.xdist_group("source")  # the trees of its modules take seconds
DOCUMENT = (ROOT / "docs" / "errors.md").read_text()
HOME = ROOT / "proto" / "counterpoint" / "proto" / "errors.py"
TAKES_CODE = {"Permanent", "Denied", "MoveToDeadLetters", "Refusal", "ProblemDetails"}
"""Classes whose first argument, or whose argument `code` or `rule`, is an error code."""


def _literals(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def spelled(tree: ast.Module) -> Iterator[int]:
    """Lines where an error is made with a literal code, or a code is compared with one."""
    codes = {code.value for code in ErrorCode}
    for node in walked(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in TAKES_CODE:
                given = [*node.args[:1], *(each.value for each in node.keywords if each.arg in ("code", "rule"))]
                if any(isinstance(each, ast.Constant) for each in given):
                    yield node.lineno
            case ast.Compare(left=ast.Attribute(attr="code" | "rule")):
                if any(codes & set(_literals(each)) for each in node.comparators):
                    yield node.lineno
            case ast.MatchClass(kwd_attrs=names):
                for name, pattern in zip(names, node.kwd_patterns, strict=True):
                    if name in ("code", "rule") and any(True for _ in _literals(pattern)):
                        yield node.lineno


def test_each_code_has_its_cause_and_its_remedy() -> None:
    rows = table(f"\n{DOCUMENT}", "# Error codes")
    assert [row[0] for row in rows] == [code.value for code in ErrorCode]
    assert all(cause.endswith(".") and action.endswith(".") for _, cause, action in rows)


def test_no_code_is_spelled_outside_the_enum() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}" for _, path, tree in sources() if path != HOME for line in spelled(tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        'raise Permanent("invalid")',
        'Denied("fence", "x")',
        'Refusal(kind="permanent", code="refused")',
        'if error.code == "not_found": pass',
        'match error:\n    case Denied(rule="fence" | "ended"): pass',
    ],
)
def test_a_spelled_code_would_be_found(text: str) -> None:
    assert list(spelled(ast.parse(text)))


def test_each_code_is_used() -> None:
    used = {
        node.attr
        for _, path, tree in sources()
        if path != HOME
        for node in walked(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ErrorCode"
    }
    assert used == {code.name for code in ErrorCode}
