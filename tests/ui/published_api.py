"""The published description of the HTTP API. `test_http_openapi.py` compares it with the API, whose takes seconds."""

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[2] / "proto" / "openapi.json"


def openapi_paths() -> dict[str, Any]:
    """The operations of each path."""
    paths: dict[str, Any] = json.loads(_FILE.read_text())["paths"]
    return paths
