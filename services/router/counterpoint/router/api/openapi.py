"""The OpenAPI document: `python -m counterpoint.router.api.openapi [--check] [FILE]`.

Writes `proto/openapi.json`. With `--check` nothing is written, and the exit code is 1 when the file differs.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from counterpoint.router.problems import MEDIA_TYPE, ProblemDetails

Node = dict[str, Any]
FILE = Path(__file__).parents[5] / "proto" / "openapi.json"

_MODELS_BY_NAME: dict[str, type[BaseModel]] = {}
_SUFFIX = "-Input"
"""Suffix of request schemas, which differ from the response schema of the same model."""


def request_body(model: type[BaseModel]) -> Node:
    """Return the OpenAPI description of a JSON body of `model`."""
    _MODELS_BY_NAME[model.__name__] = model
    schema = {"$ref": f"#/components/schemas/{model.__name__}{_SUFFIX}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def document(app: FastAPI) -> Node:
    """Return the OpenAPI document of an application."""
    described = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    problem = {"$ref": f"#/components/schemas/{ProblemDetails.__name__}{_SUFFIX}"}
    for path in described["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {
                "description": "The error.",
                "content": {MEDIA_TYPE: {"schema": problem}},
            }
    components = described.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        components.pop(unused, None)
    models: list[type[BaseModel]] = [*(_MODELS_BY_NAME[name] for name in sorted(_MODELS_BY_NAME)), ProblemDetails]
    _, definitions = models_json_schema(
        [(model, "validation") for model in models],
        ref_template=f"#/components/schemas/{{model}}{_SUFFIX}",
    )
    components.update({name + _SUFFIX: schema for name, schema in definitions["$defs"].items()})
    described["components"]["schemas"] = dict(sorted(components.items()))
    return described


def text() -> str:
    """Return the document of the router as JSON text."""
    from counterpoint.router.api.application import HttpApi

    return json.dumps(HttpApi().openapi(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m counterpoint.router.api.openapi", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when the file is not up to date")
    options = parser.parse_args(arguments)
    document_text = text()
    if options.file.is_file() and options.file.read_text(encoding="utf-8") == document_text:
        return 0
    if not options.check:
        options.file.write_text(document_text, encoding="utf-8")
    print(f"{'differs' if options.check else 'wrote'}: {options.file.name}")
    return 1 if options.check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
