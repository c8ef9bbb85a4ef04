"""`compose.yaml` as values."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "compose.yaml"
VARIABLE = re.compile(r"\$\{(\w+):\?\}")


def read() -> dict[str, Any]:
    """The file, with what it merges merged."""
    document: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return document


def variables(text: str) -> set[str]:
    """The names of what compose fills in; every one has to be given."""
    assert text.count("${") == len(VARIABLE.findall(text))
    return set(VARIABLE.findall(text))
