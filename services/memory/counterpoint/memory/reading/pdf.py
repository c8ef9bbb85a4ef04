"""PDFs to text, each in a process of its own: what crashes it or fills it costs one document."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass

from counterpoint.proto.errors import Permanent, Problem

PDF_LIMIT_S = 60
"""How long a PDF may be read, in seconds of the clock."""

_MAGIC = b"%PDF-"
_HEAD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Pages:
    """The text of a PDF with a form feed between pages, its title, and what of it has no text."""

    text: str
    title: str | None
    problem: str | None


def is_pdf(content: bytes) -> bool:
    """Whether it says that it is one."""
    return _MAGIC in content[:_HEAD_BYTES]


def pdf(content: bytes) -> Pages:
    """The text of a PDF. Raises `Permanent` with the reason where there is none to be had."""
    try:
        # The child sees no environment: it reads what strangers wrote, and needs nothing that we know.
        ended = subprocess.run(
            [sys.executable, "-I", "-m", "counterpoint.memory.reading.pdf_child"],
            input=content,
            capture_output=True,
            timeout=PDF_LIMIT_S,
            env={},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _refused(f"is a PDF that takes longer than {PDF_LIMIT_S} s to read") from error
    if ended.returncode < 0:
        raise _refused(f"is a PDF that ends its reader ({signal.Signals(-ended.returncode).name})")
    if ended.returncode > 0:
        raise _refused(f"is a PDF that its reader cannot take ({_last_line(ended.stderr)})")
    said = json.loads(ended.stdout)
    if "refused" in said:
        raise _refused(said["refused"])
    pages: list[str] = said["pages"]
    bare = [n for n, page in enumerate(pages, 1) if not page.strip()]
    if len(bare) == len(pages):
        raise _refused("is a PDF without a text layer: its pages are pictures")
    problem = f"{len(bare)} of {len(pages)} pages have no text: {_some(bare)}" if bare else None
    return Pages("\f".join(pages), said["title"] or None, problem)


def _some(pages: list[int]) -> str:
    return ", ".join(map(str, pages[:10])) + (" ..." if len(pages) > 10 else "")


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it says nothing"


def _refused(problem: str) -> Permanent:
    return Permanent("unreadable", (Problem(field="content", problem=problem),))
