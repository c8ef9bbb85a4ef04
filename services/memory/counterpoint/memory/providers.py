"""The provider index that comes with memory: which official package speaks to which external system (row A4)."""

import json
from importlib.resources import files

from counterpoint.proto.memory import Write


def provider_writes() -> tuple[Write, ...]:
    """The index as records for the shared project."""
    rows = json.loads(files("counterpoint.memory").joinpath("providers.json").read_text())
    return tuple(Write(store="providers", id=row["name"], body=row) for row in rows)
