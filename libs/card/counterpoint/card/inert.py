"""Texts of others in markdown, without effect: no link, image, HTML, mention or heading of theirs comes to life.

A block is lossless: `block_text` returns the text that `block` was given.
"""

import json
import re
import unicodedata
from collections.abc import Sequence

_RUN = re.compile(r"`+")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
TEXT, ESCAPED = "text", "json"
"""Info strings of blocks: the text as it is, and as a JSON string because it holds invisible characters."""


def has_hidden(text: str) -> bool:
    """Return whether a text has invisible characters other than tabs and line feeds."""
    return any(unicodedata.category(each) in _HIDDEN for each in text if each not in "\n\t")


def block(text: str) -> str:
    """Return a text as a block of code. One with invisible characters is written as a JSON string."""
    if has_hidden(text):
        return _fenced(json.dumps(text), ESCAPED)
    return _fenced(text, TEXT)


def block_text(lines: Sequence[str], info: str) -> str:
    """Return the text of a block's lines. Raises `ValueError` or `TypeError` for a JSON block without a JSON
    string."""
    content = "\n".join(lines)
    if info != ESCAPED:
        return content
    text = json.loads(content)
    if not isinstance(text, str):
        raise TypeError("a json block must contain one JSON string")
    return text


def span(text: str) -> str:
    """Return a text as code within a line. Line breaks become spaces, and invisible characters are left out."""
    flat = " ".join(text.split())
    flat = "".join(each for each in flat if unicodedata.category(each) not in _HIDDEN)
    if not flat:
        return "(empty)"
    fence = "`" * (max((len(run) for run in _RUN.findall(flat)), default=0) + 1)
    padding = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{padding}{flat}{padding}{fence}"


def _fenced(content: str, info: str) -> str:
    fence = "`" * max(3, max((len(run) for run in _RUN.findall(content)), default=0) + 1)
    return f"{fence}{info}\n{content}\n{fence}"
