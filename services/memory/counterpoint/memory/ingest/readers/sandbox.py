"""Reading in a process of its own: what crashes it, fills it or never ends costs one document, and holds up nobody."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

LIMIT_S = 60
"""Timeout of reading a document, in seconds."""

_CHILD = Path(__file__).with_name("worker.py")
_NAMES = {"pdf": "a PDF", "html": "HTML"}


def apart(kind: Literal["pdf", "html"], content: bytes) -> dict[str, Any]:
    """Return the text that the worker has read. Raises `ValueError` with the reason if there is none."""
    name = _NAMES[kind]
    try:
        # The child sees no environment: it reads what strangers wrote, and needs nothing that we know.
        ended = subprocess.run(
            [sys.executable, "-I", str(_CHILD), kind],
            input=content,
            capture_output=True,
            timeout=LIMIT_S,
            env={},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"is {name} that took longer than {LIMIT_S} s to read") from error
    if ended.returncode < 0:
        raise ValueError(f"is {name} that crashed its reader ({signal.Signals(-ended.returncode).name})")
    if ended.returncode > 0:
        raise ValueError(f"is {name} that its reader cannot process ({_last_line(ended.stderr)})")
    said: dict[str, Any] = json.loads(ended.stdout)
    if "refused" in said:
        raise ValueError(said["refused"])
    return said


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "no output"
