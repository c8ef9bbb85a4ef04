"""Worker process that reads one PDF, or one page of HTML, from its standard input and writes it as JSON, within fixed
limits, without a right to open files or connections, or to start processes.

It is run as a file, so that it imports nothing of this package but the limits: `python -I worker.py pdf|html`.
"""

import codecs
import json
import os
import resource
import sys
from typing import Any

from counterpoint.memory.sandbox import limits

MEMORY_LIMIT_BYTES = 512 * 1024 * 1024
CPU_LIMIT_S = 45
TEXT_LIMIT_CHARS = 8 * 1024 * 1024

_REMOVED = (
    "script", "style", "nav", "noscript", "template", "svg", "iframe", "object", "form", "aside", "footer",
    "[role=navigation]", "[hidden]",
)  # fmt: skip


def bounded() -> None:
    """Limit memory and time, and make the process give way to all others where processors or memory are scarce."""
    os.nice(19)
    limits.drop_rights()
    limits.limit_memory(MEMORY_LIMIT_BYTES)
    # At the first limit a process ends with a signal that names it, and at the second one for certain.
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 5))


def pdf(content: bytes) -> dict[str, Any]:
    """Return `{"pages": [...], "title": ...}`, or `{"refused": why}`."""
    import pypdfium2
    from pypdfium2.raw import FPDF_ERR_PASSWORD

    # The encoding of its texts is imported with the first one.
    codecs.lookup("utf-16-le")
    limits.close()
    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if error.err_code == FPDF_ERR_PASSWORD:
            return {"refused": "is an encrypted PDF: it needs a password"}
        return {"refused": f"is not a readable PDF ({error})"}
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


def html(content: bytes) -> dict[str, Any]:
    """Return `{"text": markdown, "title": ...}`, or `{"refused": why}`."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    limits.close()
    try:
        soup = BeautifulSoup(content.decode(), "html.parser")
        title = " ".join(soup.title.get_text().split()) if soup.title else ""
        _unfold(soup)
        for tag in soup.select(", ".join((*_REMOVED, "head"))):
            tag.decompose()
        for image in soup.find_all("img"):
            image.replace_with(str(image.get("alt") or ""))
        for link in soup.find_all("a"):
            if not str(link.get("href") or "").startswith(("http://", "https://")):
                link.unwrap()
        converter = MarkdownConverter(
            heading_style="ATX", escape_asterisks=False, escape_underscores=False, escape_misc=False
        )
        text = str(converter.convert_soup(soup))
        if len(text) > TEXT_LIMIT_CHARS:
            return {"refused": f"is HTML of more than {TEXT_LIMIT_CHARS} characters as text"}
    except RecursionError:
        return {"refused": "is HTML that is nested too deeply"}
    return {"text": "\n".join(line.rstrip() for line in text.split("\n")).strip() + "\n", "title": title}


def _unfold(soup: Any) -> None:
    """Replace templates that a script would show by their content, if it is more text than the page itself."""
    from bs4 import BeautifulSoup

    kinds = ("text/x-handlebars-template", "text/x-template", "text/template", "text/html")
    found = [tag for tag in soup.find_all("script") if str(tag.get("type") or "").lower() in kinds]
    templates = [BeautifulSoup(tag.get_text(), "html.parser") for tag in found]
    left_out = {id(each) for tag in soup.find_all(("script", "style", "head")) for each in tag.descendants}
    page_chars = sum(len(text) for text in soup.find_all(string=True) if id(text) not in left_out)
    if sum(len(each.get_text()) for each in templates) > page_chars:
        for tag, each in zip(found, templates, strict=True):
            tag.replace_with(each)


def _plain(text: str) -> str:
    """Return a page without hyphenation marks, NUL characters and form feeds of its own."""
    for mark in ("\ufffe", "\x02"):
        text = text.replace(f"{mark}\r\n", "").replace(f"{mark}\n", "").replace(mark, "")
    return text.replace("\r\n", "\n").replace("\f", "\n").replace("\0", "").strip()


def main(kind: str) -> None:
    """Read the standard input, and write the result."""
    content = sys.stdin.buffer.read()
    bounded()
    name, reader = {"pdf": ("a PDF", pdf), "html": ("HTML", html)}[kind]
    try:
        result = reader(content)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
        result = {"refused": f"is {name} that its reader cannot process ({reason})"}
    # Without unpaired surrogates, which a PDF may have.
    sys.stdout.buffer.write(json.dumps(result, ensure_ascii=False).encode(errors="replace"))


if __name__ == "__main__":
    main(sys.argv[1])
