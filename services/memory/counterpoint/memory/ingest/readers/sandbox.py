"""Sandbox: reading in a process of its own. A crash, an endless loop or exhausted memory costs one document, and delays
nobody. What the process returns is not trusted either."""

import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

LIMIT_S = 60
"""Timeout of reading a document, in seconds."""
READERS = 2
"""Maximum number of these processes at a time; each may use the memory that `worker.py` allows."""
RESULT_LIMIT_BYTES = 64 * 1024 * 1024

_CHILD = Path(__file__).with_name("worker.py")
_NAMES = {"pdf": "a PDF", "html": "HTML"}


class ReaderResult(BaseModel):
    """The text that a process has read, of a PDF by page; or the reason why there is none."""

    pages: tuple[str, ...] = ()
    text: str = ""
    title: str = ""
    refused: Annotated[str, Field(max_length=300)] | None = None


def read_in_worker(kind: Literal["pdf", "html"], content: bytes) -> ReaderResult:
    """Return the text that the worker has read. Raises `ValueError` with the reason if there is none."""
    name = _NAMES[kind]
    code, written, is_late = _run(kind, content)
    if is_late:
        raise ValueError(f"is {name} that took longer than {LIMIT_S} s to read")
    if len(written) > RESULT_LIMIT_BYTES:
        raise ValueError(f"is {name} whose text has more than {RESULT_LIMIT_BYTES} bytes")
    if code == -signal.SIGXCPU:
        raise ValueError(f"is {name} that takes too much time of the processor to read")
    if code == -signal.SIGABRT:
        raise ValueError(f"is {name} that its reader gave up, probably for want of memory")
    if code < 0:
        raise ValueError(f"is {name} that crashed its reader ({signal.Signals(-code).name})")
    try:
        result = ReaderResult.model_validate_json(written)
    except ValidationError:
        raise ValueError(f"is {name} that its reader cannot process") from None
    if result.refused is not None:
        raise ValueError(result.refused)
    return result


def _run(kind: str, content: bytes) -> tuple[int, bytes, bool]:
    """Return the exit code of the worker, what it has written, and whether it was ended for taking too long."""
    # The worker gets no environment: it reads untrusted content, and needs nothing of it.
    with subprocess.Popen(
        [sys.executable, "-I", str(_CHILD), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.start()
        try:
            # It has read all that it is given before it writes.
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(content)
            written = process.stdout.read(RESULT_LIMIT_BYTES + 1)
            if len(written) > RESULT_LIMIT_BYTES:
                process.kill()
            code = process.wait()
            return code, written, timer.finished.is_set()
        finally:
            timer.cancel()
            process.kill()
