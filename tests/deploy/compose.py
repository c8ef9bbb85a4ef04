"""`compose.yaml` as values."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "compose.yaml"


def read() -> dict[str, Any]:
    """The file, with what it merges merged."""
    document: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return document


def secrets(service: dict[str, Any]) -> dict[str, str]:
    """The path of each secret in a container of a service, by the name of the secret."""
    mounts = [
        each if isinstance(each, dict) else {"source": each, "target": each} for each in service.get("secrets", ())
    ]
    return {each["source"]: str(Path("/run/secrets") / each["target"]) for each in mounts}


def settings(service: dict[str, Any]) -> set[str]:
    """The names of the settings that a service gets, as variables or as files."""
    files = {Path(path).name.upper() for path in secrets(service).values()}
    return set(service["environment"]) | files
