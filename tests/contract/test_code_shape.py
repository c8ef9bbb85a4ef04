"""The shape of the code: lengths, arguments, names of classes, docstrings."""

import ast
import re
from collections.abc import Iterator
from typing import TypeVar

import pytest
from contract.product import ROOT, all_modules, sources, walked

pytestmark = pytest.mark.xdist_group("source")  # the trees of its modules take seconds
MODULE_LINES, FUNCTION_LINES, ARGUMENTS = 350, 60, 8
NO_SENTENCE = re.compile(r"(?:What|Who|Whose|Whom|Which|How|So|Of|Where|When|That|Such|Whatever|Whoever)\b")
Node = TypeVar("Node", bound=ast.AST)
PLAN_ROW = re.compile(r"\(?\b[Rr]ows? [A-M]\d|\bseeds? 0\d\d\b")


def nodes(*kinds: type[Node]) -> Iterator[tuple[str, Node]]:
    """Every node of these kinds in the product, with its place."""
    for _, path, tree in sources():
        for node in walked(tree):
            if isinstance(node, kinds):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", node


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node, without the expressions, which are most of a tree."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        for each in getattr(node, name, ()):
            yield each
            yield from statements(each)


def test_modules_and_functions_are_short() -> None:
    modules = [str(path) for _, path, _ in sources() if len(path.read_text().splitlines()) > MODULE_LINES]
    functions = [
        place
        for place, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)
        if (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES
    ]
    assert not modules
    assert not functions


def test_no_class_is_constructed_from_more_than_eight_arguments() -> None:
    assert not [
        place
        for place, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)
        if node.name == "__init__" and len([*node.args.args, *node.args.kwonlyargs]) > 1 + ARGUMENTS
    ]


def test_a_public_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for place, node in nodes(ast.ClassDef):
        if not node.name.startswith("_"):
            places.setdefault(node.name, []).append(place)
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_a_docstring_is_a_sentence_or_a_noun_phrase() -> None:
    texts = [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node.value.value)
        for path, tree in all_modules()
        for node in statements(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    assert not [place for place, text in texts if NO_SENTENCE.match(text.lstrip()) or PLAN_ROW.search(text)]
