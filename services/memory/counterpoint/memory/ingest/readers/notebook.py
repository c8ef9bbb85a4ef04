"""Notebooks to markdown: their cells in order, code in fences, and the outputs below it."""

import json
import re
from collections.abc import Iterator
from typing import Any

OUTPUT_CHARS = 2_000

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TICKS = re.compile(r"`{3,}")


def notebook(source: str) -> str:
    """Return the notebook as markdown; of the outputs of a cell at most `OUTPUT_CHARS` characters. Raises `ValueError`
    with the reason if it is not a notebook."""
    try:
        known = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not a notebook: {error}") from error
    cells = _cells(known)
    if cells is None:
        raise ValueError("is not a notebook: it has no cells")
    language = _language(known.get("metadata"))
    return "\n\n".join(part for cell in cells if isinstance(cell, dict) for part in _parts(cell, language)) + "\n"


def _cells(known: Any) -> list[Any] | None:
    """Return the cells, also of the older format with sheets; None if there is no list of them."""
    match known:
        case {"cells": list(cells)}:
            return cells
        case {"worksheets": [*sheets]}:
            listed = (sheet.get("cells") for sheet in sheets if isinstance(sheet, dict))
            return [cell for cells in listed if isinstance(cells, list) for cell in cells]
        case _:
            return None


def _language(metadata: Any) -> str:
    for name, key in (("language_info", "name"), ("kernelspec", "language")):
        about = metadata.get(name) if isinstance(metadata, dict) else None
        if isinstance(about, dict) and isinstance(about.get(key), str):
            return " ".join(about[key].split())
    return ""


def _parts(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _joined(cell.get("source", cell.get("input")))
    if cell.get("cell_type") != "code":
        if source.strip():
            yield source
        return
    if source.strip():
        yield _fenced(source, language)
    outputs = cell.get("outputs")
    output = "\n".join(filter(None, map(_output_text, outputs if isinstance(outputs, list) else ())))
    if output.strip():
        more = len(output) - OUTPUT_CHARS
        yield _fenced(output if more <= 0 else f"{output[:OUTPUT_CHARS]}\n... {more} characters more", "")


def _output_text(output: Any) -> str:
    """Return an output as text: printed text, the plain form of a value, or the last line of an error."""
    if not isinstance(output, dict):
        return ""
    if output.get("output_type") in ("error", "pyerr"):
        return f"{output.get('ename')}: {_COLOUR.sub('', _joined(output.get('evalue')))}"
    data = output.get("data")
    plain = data.get("text/plain") if isinstance(data, dict) else output.get("text")
    return _COLOUR.sub("", _joined(plain)).strip("\n")


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _fenced(text: str, language: str) -> str:
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(text))])
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"
