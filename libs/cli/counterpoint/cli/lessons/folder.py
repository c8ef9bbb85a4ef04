"""A folder of pages: read them all, and write one without losing what a person wrote."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from counterpoint.cli.errors import UsageError
from counterpoint.cli.lessons.front_matter import PageError
from counterpoint.cli.lessons.parse import ParsedPage, parse

_SUFFIX = ".md"
_PAGE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class PageFile:
    """A page of a lesson and its file."""

    path: Path
    page: ParsedPage


@dataclass
class PageFolder:
    """The pages of a folder by the id of their lesson; files that are no pages, and the problems of broken pages."""

    root: Path
    pages: dict[str, PageFile] = field(default_factory=dict)
    others: list[Path] = field(default_factory=list)
    problems: list[dict[str, str | int]] = field(default_factory=list)

    @property
    def broken(self) -> frozenset[Path]:
        """Return the files with problems, which are not overwritten."""
        return frozenset(self.root / str(each["file"]) for each in self.problems)

    def write(self, path: Path, text: str) -> bool:
        """Write a page as a whole, and return whether its file changed."""
        content = text.encode()
        if path.is_file() and not path.is_symlink() and path.read_bytes() == content:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return True


def read_folder(root: Path, *, missing_ok: bool = False) -> PageFolder:
    """Return the pages of a folder and of those in it. Raises `UsageError` for a path that is no folder."""
    if not root.is_dir():
        if missing_ok and not root.exists():
            return PageFolder(root)
        raise UsageError(f"{root} is not a folder")
    folder = PageFolder(root)
    for path in _files(root):
        name = path.relative_to(root).as_posix()
        try:
            page = parse(_text(path))
        except PageError as error:
            folder.problems.append({"file": name, "line": error.line, "field": error.field, "problem": error.problem})
            continue
        if page is None:
            folder.others.append(path)
        elif (other := folder.pages.get(page.lesson.id)) is not None:
            problem = f"{page.lesson.id} is also the lesson of {other.path.relative_to(root).as_posix()}"
            folder.problems.append({"file": name, "line": 1, "field": "id", "problem": problem})
        else:
            folder.pages[page.lesson.id] = PageFile(path, page)
    return folder


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob(f"*{_SUFFIX}")):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        if not hidden and path.is_file() and not path.is_symlink():
            yield path


def _text(path: Path) -> str:
    if path.stat().st_size > _PAGE_BYTES:
        raise PageError(1, "page", f"is larger than {_PAGE_BYTES // 1024**2} MiB")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise PageError(line, "page", f"is not UTF-8: {error.reason}") from error
