"""The process that reads one PDF from its standard input and writes its pages as JSON, within fixed limits."""

import json
import resource
import sys
from typing import Any

MEMORY_LIMIT_BYTES = 512 * 1024 * 1024
CPU_LIMIT_S = 45
TEXT_LIMIT_CHARS = 8 * 1024 * 1024


def bounded() -> None:
    """Give up what a reader does not need: memory and time beyond the limits, and writing files."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def pages_of(content: bytes) -> dict[str, Any]:
    """`{"pages": [...], "title": ...}`, or `{"refused": why}`."""
    import pypdfium2
    from pypdfium2.raw import FPDF_ERR_PASSWORD

    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if error.err_code == FPDF_ERR_PASSWORD:
            return {"refused": "is an encrypted PDF: it needs a password"}
        return {"refused": f"is no PDF that can be read ({error})"}
    pages, chars = list[str](), 0
    for n in range(len(document)):
        page = document[n]
        textpage = page.get_textpage()
        pages.append(_plain(textpage.get_text_bounded()))
        textpage.close()
        page.close()
        chars += len(pages[-1])
        if chars > TEXT_LIMIT_CHARS:
            return {"refused": f"is a PDF of more than {TEXT_LIMIT_CHARS} characters"}
    return {"pages": pages, "title": " ".join(document.get_metadata_value("Title").replace("\0", "").split())}


def _plain(text: str) -> str:
    """A page without what is no text: the marks of a word that is parted at a line's end, and foreign form feeds."""
    for mark in ("\ufffe", "\x02"):
        text = text.replace(f"{mark}\r\n", "").replace(f"{mark}\n", "").replace(mark, "")
    return text.replace("\r\n", "\n").replace("\f", "\n").replace("\0", "").strip()


if __name__ == "__main__":
    given = sys.stdin.buffer.read()
    bounded()
    sys.stdout.write(json.dumps(pages_of(given)))
