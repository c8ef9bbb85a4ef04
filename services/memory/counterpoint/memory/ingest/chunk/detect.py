"""Detection of a document's type, by its name and then by its content. Pure."""

import re
from pathlib import PurePosixPath

from counterpoint.memory.ingest.chunk.python import parsed
from counterpoint.proto.ingest import ContentType

_MARKDOWN_LINE = re.compile(r"^(?:#{1,6} \S|```|~~~|\[.+\]: \S|\|.*\|[ \t]*$)", re.MULTILINE)
_HTML = re.compile(r"\s*(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_PYTHON_LINE = re.compile(r"^(?:(?:async )?def \w+\(|class \w+[(:]|import \w|from [\w.]+ import |@\w)", re.MULTILINE)
_HEAD_CHARS = 4096
_SUFFIXES: dict[str, ContentType] = {
    ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown",
    ".rst": "restructuredtext", ".rest": "restructuredtext",
    ".py": "python", ".pyi": "python", ".pyw": "python",
    ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascript",
    ".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "typescript",
    ".pdf": "pdf", ".html": "html", ".htm": "html", ".xhtml": "html", ".ipynb": "notebook",
    ".txt": "text", ".text": "text", ".log": "text", ".csv": "text", ".json": "text", ".yaml": "text", ".yml": "text",
}  # fmt: skip


def detect(name: str, source: str) -> ContentType:
    """Return the type of a document by the suffix of its name, else by its content."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if not suffix and _HTML.match(source[:_HEAD_CHARS]):
        return "html"
    if re.match(r"#!.*\bpython", source) or len(_PYTHON_LINE.findall(source)) >= 2:
        try:
            parsed(source)
        except ValueError:
            pass
        else:
            return "python"
    return "markdown" if not suffix and _MARKDOWN_LINE.search(source) else "text"
