"""Which files are documents: a walk through folders that says why it leaves something out. Reads, writes nothing."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROBE_BYTES = 8192
_NOT_WALKED = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class Readable:
    """A document: the file, its name as a source, and its text."""

    path: Path
    source: str
    text: str

    @property
    def size_bytes(self) -> int:
        """Its size on the wire."""
        return len(self.text.encode())


@dataclass(frozen=True)
class Skipped:
    """What was left out, and why. `failed`: it should have been read, and could not be."""

    path: Path
    reason: str
    failed: bool = False


def walk(paths: Iterable[Path], root: Path) -> Iterator[Readable | Skipped]:
    """The documents at and below `paths`, in the order of their names; a source is its path from `root` if it is below.

    What is named is taken even when it is hidden; below it, hidden names are not. In a folder links come last, so that
    a document has the name of its file.
    """
    seen: set[tuple[int, int]] = set()
    for path in paths:
        yield from _below(path, root, seen)


def batches(documents: Iterable[Readable], most_bytes: int, most: int = 50) -> Iterator[list[Readable]]:
    """The documents in groups of at most `most_bytes` together; a larger one is a group of its own."""
    group: list[Readable] = []
    size = 0
    for document in documents:
        if group and (size + document.size_bytes > most_bytes or len(group) == most):
            yield group
            group, size = [], 0
        group.append(document)
        size += document.size_bytes
    if group:
        yield group


def _below(path: Path, root: Path, seen: set[tuple[int, int]]) -> Iterator[Readable | Skipped]:
    try:
        stat = path.stat()
    except OSError as error:
        yield Skipped(path, error.strerror or "cannot be read", failed=not path.is_symlink())
        return
    if (stat.st_dev, stat.st_ino) in seen:
        yield Skipped(path, "seen already, by a link or another name")
        return
    seen.add((stat.st_dev, stat.st_ino))
    if path.is_dir():
        try:
            names = sorted(os.listdir(path), key=lambda name: ((path / name).is_symlink(), name))
        except OSError as error:
            yield Skipped(path, error.strerror or "cannot be read", failed=True)
            return
        for name in names:
            if name.startswith("."):
                yield Skipped(path / name, "hidden")
            elif name in _NOT_WALKED:
                yield Skipped(path / name, "made by a tool")
            else:
                yield from _below(path / name, root, seen)
    elif path.is_file():
        yield _read(path, root)
    else:
        yield Skipped(path, "neither a file nor a folder")


def _read(path: Path, root: Path) -> Readable | Skipped:
    try:
        content = path.read_bytes()
    except OSError as error:
        return Skipped(path, error.strerror or "cannot be read", failed=True)
    if b"\0" in content[:_PROBE_BYTES]:
        return Skipped(path, "binary")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Skipped(path, "not UTF-8")
    if "\0" in text:
        return Skipped(path, "binary")
    if not text.strip():
        return Skipped(path, "empty; what was ingested of it before stays")
    absolute = path.absolute()
    source = absolute.relative_to(root) if absolute.is_relative_to(root) else absolute
    return Readable(path, source.as_posix(), text)
