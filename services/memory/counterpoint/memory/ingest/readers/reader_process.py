"""Reading in a worker process: whatever happens to it costs one document. What it returns is validated."""

import signal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from counterpoint.memory.sandbox.worker_process import run_worker

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
    end = run_worker(_CHILD, kind, content=content, limit_s=LIMIT_S, result_limit_bytes=RESULT_LIMIT_BYTES)
    if end.is_late:
        raise ValueError(f"is {name} that took longer than {LIMIT_S} s to read")
    if len(end.written) > RESULT_LIMIT_BYTES:
        raise ValueError(f"is {name} whose text has more than {RESULT_LIMIT_BYTES} bytes")
    if end.code == -signal.SIGXCPU:
        raise ValueError(f"is {name} that takes too much time of the processor to read")
    if end.code == -signal.SIGABRT:
        raise ValueError(f"is {name} that its reader gave up, probably for want of memory")
    if end.code < 0:
        raise ValueError(f"is {name} that crashed its reader ({signal.Signals(-end.code).name})")
    try:
        result = ReaderResult.model_validate_json(end.written)
    except ValidationError:
        raise ValueError(f"is {name} that its reader cannot process") from None
    if result.refused is not None:
        raise ValueError(result.refused)
    return result
