"""What there is to ingest: files, folders, repositories, pages and standard input, each with the name it keeps.

The name of a file does not depend on the folder that a command is given in: in a repository it is the name of the
repository and the path from its top; elsewhere the name of the folder that is named, or the file is in, and the path
from there. `--name` gives another one.
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from counterpoint.cli import git
from counterpoint.cli.addresses import is_page, plain
from counterpoint.cli.errors import Misused
from counterpoint.cli.files import FILE_LIMIT_BYTES, Readable, Skipped, Walk, below, document

STDIN = "-"


@dataclass(frozen=True)
class Wanted:
    """What a command names: paths, addresses and `-`; and how they are to be taken."""

    names: tuple[str, ...]
    name: str | None = None
    type: str | None = None
    exclude: tuple[str, ...] = ()

    @property
    def binary(self) -> bool:
        """Whether all of it is for memory to read."""
        return self.type == "pdf"


@dataclass
class Gathered:
    """What was found; `roots` are the folders and repositories that were gone through."""

    documents: list[Readable] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)

    def is_there(self, source: str) -> bool:
        """Whether a document of this name is there, also where it could not be read, or what it is in was left out."""
        return source in self._sources or any(
            source == one.source or source.startswith(f"{one.source}/") for one in self.skipped
        )

    @cached_property
    def _sources(self) -> set[str]:
        return {one.source for one in self.documents}


def gathered(wanted: Wanted) -> Gathered:
    """All that is wanted, read. Raises `Misused` for a path that is not there."""
    for name in wanted.names:
        if name != STDIN and not is_page(name) and not git.is_elsewhere(name) and not Path(name).exists():
            raise Misused(f"{name} does not exist")
    if STDIN in wanted.names and wanted.name is None:
        raise Misused("standard input needs a --name")
    found, taken = Gathered(), set[str]()
    seen: set[tuple[int, int]] = set()
    for name in wanted.names:
        root, items = _of(name, wanted, seen)
        for item in items:
            if isinstance(item, Skipped):
                found.skipped.append(item)
            elif item.source in taken:
                reason = f"another document of this run is called {item.source} too; give --name"
                found.skipped.append(Skipped(item.path, reason, failed=True, source=item.source))
            else:
                taken.add(item.source)
                found.documents.append(item)
        if root is not None:
            found.roots.append(root)
    return found


def _of(name: str, wanted: Wanted, seen: set[tuple[int, int]]) -> tuple[str | None, Iterator[Readable | Skipped]]:
    """The root of what a name stands for, if it is one, and what is found there."""
    if name == STDIN:
        return None, iter([_stdin(wanted)])
    if git.is_elsewhere(name):
        return plain(name), _cloned(name, wanted)
    if is_page(name):
        return None, _page(name, wanted)
    path = Path(name)
    top = git.top_of(path)
    source = wanted.name or _source(path.resolve(), top)
    if not path.is_dir():
        how = Walk(path.resolve(), None, wanted.exclude, wanted.binary)
        return None, below(path, source, how, seen)
    root = f"file://{socket.gethostname()}{quote(path.resolve().as_posix(), errors='surrogateescape')}"
    how = Walk(path.resolve(), root, wanted.exclude, wanted.binary)
    if top == path.resolve():
        return root, _tracked(path, source, how, seen)
    return root, below(path, source, how, seen)


def _source(path: Path, top: Path | None) -> str:
    if top is not None:
        return "/".join((top.name, *path.relative_to(top).parts))
    return path.name or "root" if path.is_dir() else f"{path.parent.name}/{path.name}".lstrip("/")


def _tracked(top: Path, source: str, how: Walk, seen: set[tuple[int, int]]) -> Iterator[Readable | Skipped]:
    try:
        names = git.tracked(top)
    except git.NoRepository as error:
        yield Skipped(top, str(error), failed=True, source=source)
        return
    names.sort(key=lambda name: ((top / name).is_symlink(), name))
    for name in names:
        if not (top / name).is_dir():
            yield from below(top / name, f"{source}/{name}", how, seen)


def _cloned(address: str, wanted: Wanted) -> Iterator[Readable | Skipped]:
    name = wanted.name or git.name_of(address)
    with ExitStack() as stack:
        try:
            copy = stack.enter_context(git.cloned(address))
        except git.NoRepository as error:
            yield Skipped(Path(plain(address)), str(error), failed=True, source=name)
            return
        how = Walk(copy.resolve(), plain(address), wanted.exclude, wanted.binary)
        for item in _tracked(copy, name, how, set()):
            yield replace(item, path=Path(item.source))


def _page(address: str, wanted: Wanted) -> Iterator[Readable | Skipped]:
    from counterpoint.cli.pages import fetch

    item = fetch(address)
    yield replace(item, source=wanted.name) if wanted.name else item


def _stdin(wanted: Wanted) -> Readable | Skipped:
    assert wanted.name is not None
    content = sys.stdin.buffer.read(FILE_LIMIT_BYTES + 1)
    return document(Path(STDIN), wanted.name, content, binary=wanted.binary)
