"""Sources of documents: files, folders, repositories, pages and standard input.

The name of a file does not depend on the working directory: in a repository it is the name of the repository and the
path from its root; elsewhere it is the name of the given folder, or of the folder of a given file, and the path from
there. `--name` replaces it.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from counterpoint.cli.errors import UsageError
from counterpoint.cli.ingest import git
from counterpoint.cli.ingest.files import FILE_LIMIT_BYTES, FolderWalk, SkippedPath, SourceFile, below, document
from counterpoint.cli.ingest.url_list import is_page, without_credentials

STDIN = "-"


@dataclass(frozen=True)
class SourceSelection:
    """Paths, URLs and `-` of a command, and their options. `opened`: files are read."""

    names: tuple[str, ...]
    name: str | None = None
    type: str | None = None
    exclude: tuple[str, ...] = ()
    opened: bool = True

    @property
    def binary(self) -> bool:
        """Return whether all files are sent as bytes."""
        return self.type == "pdf"


@dataclass
class DocumentSources:
    """The documents of a selection, found one by one.

    `roots` are the folders and repositories visited, `empty` those without any file, `sources` the names so far.
    """

    selection: SourceSelection
    skipped: list[SkippedPath] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)

    def documents(self, on_skip: Callable[[SkippedPath], None]) -> Iterator[SourceFile]:
        """Yield each document as it is read, once. `on_skip` is called for skipped paths."""
        visited: set[tuple[int, int]] = set()
        for name in self.selection.names:
            root, items = _open(name, self.selection, visited)
            anything = False
            for item in items:
                anything = True
                if isinstance(item, SourceFile) and item.source not in self.sources:
                    self.sources.add(item.source)
                    yield item
                    continue
                if isinstance(item, SourceFile):
                    reason = f"another document of this run has the name {item.source}; give --name"
                    item = SkippedPath(item.path, reason, failed=True, source=item.source)
                self.skipped.append(item)
                on_skip(item)
            if root is not None:
                (self.roots if anything else self.empty).append(root)

    def estimate(self) -> int:
        """Return the estimated number of documents."""
        here = SourceSelection(
            self.selection.names, self.selection.name, self.selection.type, self.selection.exclude, opened=False
        )
        visited: set[tuple[int, int]] = set()
        local = [name for name in here.names if name != STDIN and not git.is_repository_url(name) and not is_page(name)]
        items = (item for name in local for item in _open(name, here, visited)[1])
        return len(here.names) - len(local) + sum(isinstance(item, SourceFile) for item in items)

    def contains(self, source: str) -> bool:
        """Return whether a document of this name exists, even if it was unreadable or skipped."""
        return source in self.sources or any(
            source == one.source or source.startswith(f"{one.source}/") for one in self.skipped
        )


def open_sources(selection: SourceSelection) -> DocumentSources:
    """Open the sources of a selection. Raises `UsageError` for a missing path."""
    for name in selection.names:
        if name != STDIN and not is_page(name) and not git.is_repository_url(name) and not Path(name).exists():
            raise UsageError(f"{name} does not exist")
    if STDIN in selection.names and selection.name is None:
        raise UsageError("standard input needs a --name")
    return DocumentSources(selection)


def _open(
    name: str, selection: SourceSelection, visited: set[tuple[int, int]]
) -> tuple[str | None, Iterator[SourceFile | SkippedPath]]:
    """Return the root that a name stands for, if any, and its documents."""
    if name == STDIN:
        return None, iter([_stdin(selection)])
    if git.is_repository_url(name):
        return without_credentials(name), _cloned(name, selection)
    if is_page(name):
        return None, _page(name, selection)
    path = Path(name)
    top = git.working_tree_root(path)
    source = selection.name or _source(path.resolve(), top)
    if not path.is_dir():
        how = FolderWalk(path.resolve(), None, selection.exclude, selection.binary, selection.opened)
        return None, below(path, source, how, visited)
    root = f"file://{socket.gethostname()}{quote(path.resolve().as_posix(), errors='surrogateescape')}"
    how = FolderWalk(path.resolve(), root, selection.exclude, selection.binary, selection.opened)
    if top == path.resolve():
        return root, _tracked(path, source, how, visited)
    return root, below(path, source, how, visited)


def _source(path: Path, top: Path | None) -> str:
    if top is not None:
        return "/".join((top.name, *path.relative_to(top).parts))
    return path.name or "root" if path.is_dir() else f"{path.parent.name}/{path.name}".lstrip("/")


def _tracked(
    top: Path, source: str, how: FolderWalk, visited: set[tuple[int, int]]
) -> Iterator[SourceFile | SkippedPath]:
    try:
        names = git.tracked_files(top)
    except git.RepositoryError as error:
        yield SkippedPath(top, str(error), failed=True, source=source)
        return
    names.sort(key=lambda name: ((top / name).is_symlink(), name))
    for name in names:
        if os.path.lexists(top / name) and not (top / name).is_dir():
            yield from below(top / name, f"{source}/{name}", how, visited)


def _cloned(address: str, selection: SourceSelection) -> Iterator[SourceFile | SkippedPath]:
    name = selection.name or git.repository_name(address)
    with ExitStack() as stack:
        try:
            copy = stack.enter_context(git.clone(address))
        except git.RepositoryError as error:
            yield SkippedPath(Path(without_credentials(address)), str(error), failed=True, source=name)
            return
        how = FolderWalk(
            copy.resolve(), without_credentials(address), selection.exclude, selection.binary, selection.opened
        )
        for item in _tracked(copy, name, how, set()):
            yield replace(item, path=Path(item.source))


def _page(address: str, selection: SourceSelection) -> Iterator[SourceFile | SkippedPath]:
    from counterpoint.cli.ingest.pages import fetch

    item = fetch(address)
    yield replace(item, source=selection.name) if selection.name else item


def _stdin(selection: SourceSelection) -> SourceFile | SkippedPath:
    assert selection.name is not None
    content = sys.stdin.buffer.read(FILE_LIMIT_BYTES + 1)
    return document(Path(STDIN), selection.name, content, binary=selection.binary)
