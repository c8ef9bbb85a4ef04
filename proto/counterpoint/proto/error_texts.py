"""The cause of each error code and what the caller does, from the docstrings of `ErrorCode`."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from counterpoint.proto.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class ErrorText:
    """The cause of an error, and the action that its caller takes."""

    cause: str
    action: str


@cache
def error_texts() -> Mapping[str, ErrorText]:
    """Return the texts by code, in the order of `ErrorCode`."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(ErrorCode))).body
    assert isinstance(tree, ast.ClassDef)
    texts = {}
    for member, doc in zip(tree.body, tree.body[1:], strict=False):
        match member, doc:
            case ast.Assign(value=ast.Constant(str() as code)), ast.Expr(ast.Constant(str() as text)):
                cause, action = " ".join(text.split()).split(". ", 1)
                texts[code] = ErrorText(f"{cause}.", action)
    return texts
