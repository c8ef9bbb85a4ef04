"""Files as documents: a walk through folders that reports each skipped path. Read-only."""

import base64
import codecs
import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

FILE_LIMIT_BYTES = 11 * 1024 * 1024
"""Largest file that fits into one request."""

_PROBE_BYTES = 8192
_HEAD_BYTES = 1024
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_NOT_WALKED = frozenset({"__pycache__", "node_modules"})
_READ_BY_MEMORY = (".html", ".htm", ".xhtml")
"""Types that may declare their own encoding."""
KEPT_NOTE = "the version ingested before is kept"


@dataclass(frozen=True)
class SourceFile:
    """A document: the file, its source name, and its text or bytes.

    `root` is the folder or repository that contains it, if the file was not named itself. `gone`: it was removed.
    """

    path: Path
    source: str
    text: str = ""
    content: bytes | None = None
    root: str | None = None
    type: str | None = None
    gone: bool = False

    @property
    def size_bytes(self) -> int:
        """Return its size in a request."""
        return len(self.text.encode()) if self.content is None else len(self.content) * 4 // 3

    def body(self, type_: str | None = None) -> dict[str, Any]:
        """Return it as JSON for the API."""
        if self.gone:
            return {"source": self.source, "gone": True, "root": self.root}
        content_field = (
            {"text": self.text} if self.content is None else {"content": base64.b64encode(self.content).decode()}
        )
        extra = {"type": type_ or self.type, "root": self.root}
        return {
            "source": self.source,
            **content_field,
            **{name: value for name, value in extra.items() if value is not None},
        }


@dataclass(frozen=True)
class SkippedPath:
    """A skipped path and the reason. `failed`: it could not be read.

    `source` is its source name, and the prefix of the names below it. `empty`: the file has no text.
    """

    path: Path
    reason: str
    failed: bool = False
    source: str = ""
    empty: bool = False


@dataclass(frozen=True)
class FolderWalk:
    """Options of a walk. No link may lead out of `top`. `binary`: send all files as bytes.

    Unless `opened`, files are listed without reading them.
    """

    top: Path
    root: str | None = None
    exclude: tuple[str, ...] = ()
    binary: bool = False
    opened: bool = True


def walk(paths: Iterable[Path], root: Path) -> Iterator[SourceFile | SkippedPath]:
    """Yield the documents at and below `paths`, by name. A source is its path relative to `root`.

    Hidden names are skipped below a path, not as a path. Links come last in a folder, so that a document gets the name
    of its file.
    """
    visited: set[tuple[int, int]] = set()
    for path in paths:
        absolute = path.absolute()
        source = absolute.relative_to(root) if absolute.is_relative_to(root) else absolute
        yield from below(path, source.as_posix(), FolderWalk(path.resolve()), visited)


def batches(documents: Iterable[SourceFile], most_bytes: int, most: int = 50) -> Iterator[list[SourceFile]]:
    """Yield documents in batches of at most `most_bytes`. A larger document is a batch of its own."""
    group: list[SourceFile] = []
    size = 0
    for document in documents:
        if group and (size + document.size_bytes > most_bytes or len(group) == most):
            yield group
            group, size = [], 0
        group.append(document)
        size += document.size_bytes
    if group:
        yield group


def below(
    path: Path, source: str, options: FolderWalk, visited: set[tuple[int, int]]
) -> Iterator[SourceFile | SkippedPath]:
    """Yield the documents at and below a path with the name `source`."""
    if not _is_encodable(source):
        shown = Path(os.fsencode(path).decode(errors="replace"))
        yield SkippedPath(shown, "its name is not UTF-8", failed=True, source=source)
        return
    try:
        stat = path.stat()
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        loop = isinstance(error, RuntimeError) or getattr(error, "errno", None) == errno.ELOOP
        reason = "a circular link" if loop else getattr(error, "strerror", None) or "cannot be read"
        yield SkippedPath(path, reason, failed=loop or not path.is_symlink(), source=source)
        return
    if any(fnmatch(source, pattern) or fnmatch(path.name, pattern) for pattern in options.exclude):
        yield SkippedPath(path, "excluded", source=source)
        return
    if not target.is_relative_to(options.top):
        yield SkippedPath(path, "a link to a path outside the folder", failed=True, source=source)
        return
    if path.is_symlink() and path.is_dir() and path.parent.resolve().is_relative_to(target):
        yield SkippedPath(path, "a link to a parent folder, which would loop", failed=True, source=source)
        return
    if (stat.st_dev, stat.st_ino) in visited:
        yield SkippedPath(path, "already read, through a link or another name", source=source)
        return
    visited.add((stat.st_dev, stat.st_ino))
    if path.is_dir():
        yield from _listed(path, source, options, visited)
    elif path.is_file():
        yield read(path, source, options) if options.opened else SourceFile(path, source)
    else:
        yield SkippedPath(path, "neither a file nor a folder", source=source)


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _listed(
    path: Path, source: str, options: FolderWalk, visited: set[tuple[int, int]]
) -> Iterator[SourceFile | SkippedPath]:
    try:
        names = sorted(os.listdir(path), key=lambda name: ((path / name).is_symlink(), name))
    except OSError as error:
        yield SkippedPath(path, error.strerror or "cannot be read", failed=True, source=source)
        return
    for name in names:
        if name.startswith(".") and _is_encodable(name):
            yield SkippedPath(path / name, "hidden", source=_under(source, name))
        elif name in _NOT_WALKED:
            yield SkippedPath(path / name, "a generated folder", source=_under(source, name))
        else:
            yield from below(path / name, _under(source, name), options, visited)


def _under(source: str, name: str) -> str:
    return name if source == "." else f"{source}/{name}"


def read(path: Path, source: str, options: FolderWalk) -> SourceFile | SkippedPath:
    """Return a file as a document, or the reason to skip it."""
    try:
        size = path.stat().st_size
        if size > FILE_LIMIT_BYTES:
            return SkippedPath(path, _huge(size), failed=True, source=source)
        content = path.read_bytes()
    except OSError as error:
        return SkippedPath(path, error.strerror or "cannot be read", failed=True, source=source)
    found = document(path, source, content, root=options.root, binary=options.binary)
    if isinstance(found, SkippedPath) and found.empty and path.resolve() != options.top:
        return replace(found, reason="empty", failed=False)
    return found


def document(
    path: Path, source: str, content: bytes, *, root: str | None = None, type: str | None = None, binary: bool = False
) -> SourceFile | SkippedPath:
    """Return bytes as a document: as text, or as they are for memory to read (always with `binary`)."""
    if len(content) > FILE_LIMIT_BYTES:
        return SkippedPath(path, _huge(len(content)), failed=True, source=source)
    if not content.strip():
        return SkippedPath(path, f"empty; {KEPT_NOTE}", failed=True, source=source, empty=True)
    file = SourceFile(path, source, root=root, type=type)
    if binary or b"%PDF-" in content[:_HEAD_BYTES]:
        return replace(file, content=content)
    try:
        text = content.decode("utf-16" if content.startswith(_MARKS) else "utf-8-sig")
    except UnicodeDecodeError:
        if b"\0" not in content[:_PROBE_BYTES]:
            if source.lower().endswith(_READ_BY_MEMORY) or type == "html":
                return replace(file, content=content)
            reason = f"neither UTF-8 nor UTF-16 with a byte order mark; {KEPT_NOTE}"
            return SkippedPath(path, reason, failed=True, source=source)
        text = "\0"
    if "\0" in text:
        return SkippedPath(path, "binary, of an unsupported format", failed=True, source=source)
    if not text.strip():
        return SkippedPath(path, f"empty; {KEPT_NOTE}", failed=True, source=source, empty=True)
    return replace(file, text=text)


def _huge(size: int) -> str:
    return f"too large: {size / 2**20:.1f} MiB, the limit is {FILE_LIMIT_BYTES // 2**20} MiB; split the file"
