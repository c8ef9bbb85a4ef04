"""The built-in provider index: the official package for each external system."""

import json
from functools import cache
from importlib.resources import files

from counterpoint.proto.memory import Write
from counterpoint.proto.providers import Provider


@cache
def built_in_providers() -> tuple[Provider, ...]:
    """Return the rows of `providers.json`; the file names its sources."""
    index = json.loads(files(__package__).joinpath("providers.json").read_text())
    return tuple(Provider.model_validate(row) for row in index["rows"])


def provider_writes() -> tuple[Write, ...]:
    """Return the index as records for the shared project, each under the name of its package."""
    bodies = [row.model_dump(mode="json", exclude_none=True) for row in built_in_providers()]
    return tuple(Write(store="providers", id=body["package"], body=body) for body in bodies)
