"""Sandbox: reading in a process of its own. A crash, an endless loop or exhausted memory costs one document, and delays
nobody."""

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


def read_in_worker(kind: Literal["pdf", "html"], content: bytes) -> dict[str, Any]:
    """Return the text that the worker has read. Raises `ValueError` with the reason if there is none."""
    name = _NAMES[kind]
    try:
        # The worker gets no environment: it reads untrusted content, and needs nothing of it.
        process = subprocess.run(
            [sys.executable, "-I", str(_CHILD), kind],
            input=content,
            capture_output=True,
            timeout=LIMIT_S,
            env={},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"is {name} that took longer than {LIMIT_S} s to read") from error
    if process.returncode < 0:
        raise ValueError(f"is {name} that crashed its reader ({signal.Signals(-process.returncode).name})")
    if process.returncode > 0:
        raise ValueError(f"is {name} that its reader cannot process ({_last_line(process.stderr)})")
    result: dict[str, Any] = json.loads(process.stdout)
    if "refused" in result:
        raise ValueError(result["refused"])
    return result


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "no output"
