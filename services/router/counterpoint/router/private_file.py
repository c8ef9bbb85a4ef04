"""Files of configuration with credentials: TOML that only its owner may read."""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class NamedRow(BaseModel):
    """A row of a file, known by its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str


Named = TypeVar("Named", bound=NamedRow)


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


def named_models(
    model: type[Named], rows: Sequence[Any], noun: str, limit: int, wrong: Callable[[str], Exception]
) -> tuple[Named, ...]:
    """Return the rows as models, each with a name of its own. Raises `wrong` for the first row at fault."""
    if len(rows) > limit:
        raise wrong(f"{len(rows)} {noun}s; at most {limit} are possible")
    found = list[Named]()
    for number, row in enumerate(rows, 1):
        try:
            found.append(model.model_validate(row))
        except ValidationError as error:
            where, problem = first_problem(error)
            name = row.get("name", number) if isinstance(row, dict) else number
            raise wrong(f"{noun} {number}: {where or name}: {problem}") from None
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise wrong(f"two {noun}s have the same name: {', '.join(sorted(names))}")
    return tuple(found)


def first_problem(error: ValidationError) -> tuple[str, str]:
    """Return the place of a validation's first problem and its text. Its input may be a secret, and is left out."""
    first = error.errors(include_input=False, include_url=False)[0]
    return ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
