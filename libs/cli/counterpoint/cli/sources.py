"""What there is to ingest: files, folders, repositories, pages and standard input, each with the name it keeps.

The name of a file does not depend on the folder that a command is given in: in a repository it is the name of the
repository and the path from its top; elsewhere the name of the folder that is named, or the file is in, and the path
from there. `--name` gives another one.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from counterpoint.cli import git
from counterpoint.cli.addresses import is_page, plain
from counterpoint.cli.errors import Misused
from counterpoint.cli.files import FILE_LIMIT_BYTES, Readable, Skipped, Walk, below, document

STDIN = "-"


@dataclass(frozen=True)
class Wanted:
    """What a command names: paths, addresses and `-`; and how they are to be taken. `opened`: files are read."""

    names: tuple[str, ...]
    name: str | None = None
    type: str | None = None
    exclude: tuple[str, ...] = ()
    opened: bool = True

    @property
    def binary(self) -> bool:
        """Whether all of it is for memory to read."""
        return self.type == "pdf"


@dataclass
class Gathered:
    """What is wanted, found one by one: no more of it is held than is looked at.

    `roots` are the folders and repositories that were gone through, `empty` those in which there was nothing at all,
    `sources` the names of the documents so far.
    """

    wanted: Wanted
    skipped: list[Skipped] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)

    def documents(self, left_out: Callable[[Skipped], None]) -> Iterator[Readable]:
        """Each document, read when its turn comes; `left_out` is told what is none. To be gone through once."""
        seen: set[tuple[int, int]] = set()
        for name in self.wanted.names:
            root, items = _of(name, self.wanted, seen)
            anything = False
            for item in items:
                anything = True
                if isinstance(item, Readable) and item.source not in self.sources:
                    self.sources.add(item.source)
                    yield item
                    continue
                if isinstance(item, Readable):
                    reason = f"another document of this run is called {item.source} too; give --name"
                    item = Skipped(item.path, reason, failed=True, source=item.source)
                self.skipped.append(item)
                left_out(item)
            if root is not None:
                (self.roots if anything else self.empty).append(root)

    def about(self) -> int:
        """How many documents there are, as far as that is known before they are read."""
        here = Wanted(self.wanted.names, self.wanted.name, self.wanted.type, self.wanted.exclude, opened=False)
        seen: set[tuple[int, int]] = set()
        local = [name for name in here.names if name != STDIN and not git.is_elsewhere(name) and not is_page(name)]
        found = (item for name in local for item in _of(name, here, seen)[1])
        return len(here.names) - len(local) + sum(isinstance(item, Readable) for item in found)

    def is_there(self, source: str) -> bool:
        """Whether a document of this name is there, also where it could not be read, or what it is in was left out."""
        return source in self.sources or any(
            source == one.source or source.startswith(f"{one.source}/") for one in self.skipped
        )


def gathered(wanted: Wanted) -> Gathered:
    """All that is wanted. Raises `Misused` for a path that is not there."""
    for name in wanted.names:
        if name != STDIN and not is_page(name) and not git.is_elsewhere(name) and not Path(name).exists():
            raise Misused(f"{name} does not exist")
    if STDIN in wanted.names and wanted.name is None:
        raise Misused("standard input needs a --name")
    return Gathered(wanted)


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
        how = Walk(path.resolve(), None, wanted.exclude, wanted.binary, wanted.opened)
        return None, below(path, source, how, seen)
    root = f"file://{socket.gethostname()}{quote(path.resolve().as_posix(), errors='surrogateescape')}"
    how = Walk(path.resolve(), root, wanted.exclude, wanted.binary, wanted.opened)
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
        if os.path.lexists(top / name) and not (top / name).is_dir():
            yield from below(top / name, f"{source}/{name}", how, seen)


def _cloned(address: str, wanted: Wanted) -> Iterator[Readable | Skipped]:
    name = wanted.name or git.name_of(address)
    with ExitStack() as stack:
        try:
            copy = stack.enter_context(git.cloned(address))
        except git.NoRepository as error:
            yield Skipped(Path(plain(address)), str(error), failed=True, source=name)
            return
        how = Walk(copy.resolve(), plain(address), wanted.exclude, wanted.binary, wanted.opened)
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
