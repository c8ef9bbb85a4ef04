"""The requests of the command line name parameters that the HTTP API has; an unknown one would be ignored there."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner
from ui.cli_server import playing
from ui.published_api import openapi_paths

import counterpoint.cli
from counterpoint.cli.main import app

SOURCES = sorted(Path(counterpoint.cli.__path__[0]).rglob("*.py"))
PATHS = openapi_paths()
METHODS = {"get": "get", "pages": "get", "stream": "get", "post": "post", "put": "put", "delete": "delete"}
OF_THE_CLIENT = {"headers", "limit", "last_id", "opened", "stopped"}
"""Arguments of the client that are no query parameters."""


def _template(path: ast.expr) -> str | None:
    """A path of the API with `*` for each value; None for one that is a variable."""
    match path:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "*" for part in parts)  # type: ignore[misc]
    return None


def _requests() -> Iterator[tuple[str, str, str, set[str]]]:
    """Place, method, path and parameters of every request whose path is written out."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            path, method = _template(node.args[0]), METHODS.get(node.func.attr)
            if method is not None and path is not None and path.startswith("/v1/"):
                names = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
                yield f"{source.name}:{node.lineno}", method, path.partition("?")[0], names - OF_THE_CLIENT


def test_every_parameter_is_known_to_the_api() -> None:
    unknown = []
    requests = list(_requests())
    for place, method, path, names in requests:
        pattern = re.escape(path).replace(r"\*", "[^/]+|.+")
        operations = [
            operations[method]
            for known, operations in PATHS.items()
            if method in operations and re.fullmatch(pattern, re.sub(r"{\w+}", "x", known))
        ]
        known = {each["name"] for operation in operations for each in operation.get("parameters", ())}
        unknown += [f"{place}: {method} {path} has no {name}" for name in names - known]
    assert len(requests) > 30
    assert not unknown


def test_an_export_and_proofs_of_several_pages_end(tmp_path: Path) -> None:
    def leaf(n: int) -> dict[str, object]:
        return {"index": n, "leaf": "00", "body": None}

    counts = {"commits": 2, "refusals": 0, "records": 2}
    verified = counts | {
        "key": "k",
        "ok": True,
        "head": {"position": 2, "root": "00"},
        "window": {"from": 2, "to": 2, "waiting": 0},
    }
    with playing() as api:
        api.on("GET /v1/audit/verify", (200, verified))
        pages = [{"items": [leaf(0)], "next": 1}, {"items": [leaf(1)], "next": None}]
        api.on("GET /v1/audit/leaves", *((200, page) for page in pages))
        done = CliRunner().invoke(app, ["verify", "--export", str(tmp_path / "leaves"), *api.options()])
        assert done.exit_code == 0, done.output
        assert [one.params.get("after") for one in api.asked[1:]] == ["0", "1"]
        assert len((tmp_path / "leaves").read_text().splitlines()) == 2
        proofs = {"key": "k", "checkpoint": "c", "size": 2}
        shown = [proofs | {"leaves": [leaf(0)], "next": 1}, proofs | {"leaves": [leaf(1)], "next": None}]
        api.on("GET /v1/audit/proofs/t-1", *((200, page) for page in shown))
        done = CliRunner().invoke(app, ["verify", "--task", "t-1", "--json", *api.options()])
        assert done.exit_code == 0, done.output
        assert [one.params.get("after") for one in api.asked[4:]] == [None, "1"]
        assert len(json.loads(done.output)["proofs"]["leaves"]) == 2


@pytest.mark.parametrize("name", ["unsigned", "follow"])
def test_a_parameter_that_no_endpoint_has_is_found(name: str) -> None:
    known = {each["name"] for each in PATHS["/v1/audit/leaves"]["get"]["parameters"]}
    assert name not in known
