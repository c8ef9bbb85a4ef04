"""The schemas of Kubernetes' objects, in which no unknown field is legal."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
from deploy.compose import ROOT
from jsonschema.protocols import Validator
from referencing import Registry, Resource

OLDEST, NEWEST = "1.27.0", "1.37.0"
"""The oldest version of Kubernetes that the chart accepts, and the newest known."""
CUSTOM = {path.stem: json.loads(path.read_text()) for path in (ROOT / "tests" / "data" / "crds").glob("*.json")}


@cache
def _contents(version: str, name: str) -> Any:
    return json.loads(
        files("kubernetes_validate").joinpath(f"kubernetes-json-schema/v{version}-local-strict/{name}.json").read_text()
    )


@cache
def _validator(version: str, kind: str, api: str) -> Validator:
    group, _, level = api.rpartition("/")
    name = "-".join(part for part in (kind.lower(), group.partition(".")[0], level) if part)
    definitions = Resource.from_contents(_contents(version, "_definitions"))
    return jsonschema.Draft202012Validator(_contents(version, name), registry=definitions @ Registry())


@cache
def _custom(kind: str) -> Validator:
    return jsonschema.Draft202012Validator(closed(CUSTOM[kind]["schema"]) | {"additionalProperties": True})


def closed(schema: Any) -> Any:
    """Return the schema of a custom resource without unknown fields, which the API server drops."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(each) for name, each in schema.items()}
    if made.get("x-kubernetes-int-or-string") is True:
        return {"type": ["integer", "string"]}
    if isinstance(made.get("properties"), dict) and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def problems(each: dict[str, Any], version: str = NEWEST) -> list[str]:
    """Return what is wrong with an object: unknown fields, missing ones, wrong types."""
    kind, api = each["kind"], each["apiVersion"]
    if kind in CUSTOM:
        assert api == CUSTOM[kind]["apiVersion"], kind
        validator = _custom(kind)
    else:
        validator = _validator(version, kind, api)
    return [f"{kind} {error.json_path}: {error.message}" for error in validator.iter_errors(each)]
