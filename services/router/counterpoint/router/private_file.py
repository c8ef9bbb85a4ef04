"""Files of configuration with credentials: TOML that only its owner may read."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError


class PrivateFileError(ValueError):
    """A file with credentials cannot be used. The text has neither its folder nor one of its values."""


def private_rows(file: Path, table: str) -> list[Any]:
    """Return the tables `[[table]]` of a file. Raises `PrivateFileError`."""
    try:
        if file.stat().st_mode & 0o077:
            raise PrivateFileError(f"has credentials and is readable by others; run chmod 600 {file.name}")
        content = tomllib.loads(file.read_text())
    except OSError as error:
        raise PrivateFileError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PrivateFileError("cannot be read: it is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise PrivateFileError(f"cannot be read: {error}") from error
    rows = content.get(table, [])
    if set(content) - {table} or not isinstance(rows, list):
        raise PrivateFileError(f"may contain [[{table}]] tables only")
    return rows


def first_problem(error: ValidationError) -> tuple[str, str]:
    """Return the place of a validation's first problem and its text. Its input may be a secret, and is left out."""
    first = error.errors(include_input=False, include_url=False)[0]
    return ".".join(map(str, first["loc"])), first["msg"]
