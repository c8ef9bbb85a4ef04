"""The OpenAPI document of the application, with the request bodies that endpoints parse themselves."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from counterpoint.router.problems import MEDIA_TYPE, ProblemDetails

Node = dict[str, Any]

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
