"""Which files are documents: a walk through folders that says why it leaves something out. Reads, writes nothing."""

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
"""What fits into one request when it is sent as it is."""

_PROBE_BYTES = 8192
_HEAD_BYTES = 1024
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_NOT_WALKED = frozenset({"__pycache__", "node_modules"})
_READ_BY_MEMORY = (".html", ".htm", ".xhtml")
"""What may say its encoding itself."""
STAYS = "what was ingested of it before stays"


@dataclass(frozen=True)
class Readable:
    """A document: the file, its name as a source, and its text, or what memory is to read of it.

    `root` is the folder or repository it was found in, when it was not named itself; `gone`: it is there no more.
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
        """Its size on the wire."""
        return len(self.text.encode()) if self.content is None else len(self.content) * 4 // 3

    def body(self, type_: str | None = None) -> dict[str, Any]:
        """It as the API takes it."""
        if self.gone:
            return {"source": self.source, "gone": True, "root": self.root}
        what = {"text": self.text} if self.content is None else {"content": base64.b64encode(self.content).decode()}
        own = {"type": type_ or self.type, "root": self.root}
        return {"source": self.source, **what, **{name: value for name, value in own.items() if value is not None}}


@dataclass(frozen=True)
class Skipped:
    """What was left out, and why. `failed`: it should have been read, and could not be.

    `source`: the name that it would have, and the beginning of the names of what is below it. `empty`: there is no text
    in it, as in many an `__init__.py`.
    """

    path: Path
    reason: str
    failed: bool = False
    source: str = ""
    empty: bool = False


@dataclass(frozen=True)
class Walk:
    """How a folder is gone through: no link may lead out of `top`; `binary`: memory is to read all of it.

    Where it is not `opened`, nothing is read: all files are documents, without a text.
    """

    top: Path
    root: str | None = None
    exclude: tuple[str, ...] = ()
    binary: bool = False
    opened: bool = True


def walk(paths: Iterable[Path], root: Path) -> Iterator[Readable | Skipped]:
    """The documents at and below `paths`, in the order of their names; a source is its path from `root` if it is below.

    What is named is taken even when it is hidden; below it, hidden names are not. In a folder links come last, so that
    a document has the name of its file.
    """
    seen: set[tuple[int, int]] = set()
    for path in paths:
        absolute = path.absolute()
        source = absolute.relative_to(root) if absolute.is_relative_to(root) else absolute
        yield from below(path, source.as_posix(), Walk(path.resolve()), seen)


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


def below(path: Path, source: str, how: Walk, seen: set[tuple[int, int]]) -> Iterator[Readable | Skipped]:
    """The documents at and below a path, which is called `source`."""
    if not _sayable(source):
        shown = Path(os.fsencode(path).decode(errors="replace"))
        yield Skipped(shown, "its name is not UTF-8", failed=True, source=source)
        return
    try:
        stat = path.stat()
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        loop = isinstance(error, RuntimeError) or getattr(error, "errno", None) == errno.ELOOP
        reason = "a link that leads to itself" if loop else getattr(error, "strerror", None) or "cannot be read"
        yield Skipped(path, reason, failed=loop or not path.is_symlink(), source=source)
        return
    if any(fnmatch(source, pattern) or fnmatch(path.name, pattern) for pattern in how.exclude):
        yield Skipped(path, "excluded", source=source)
        return
    if not target.is_relative_to(how.top):
        yield Skipped(path, "a link that leads out of the folder", failed=True, source=source)
        return
    if path.is_symlink() and path.is_dir() and path.parent.resolve().is_relative_to(target):
        yield Skipped(path, "a link to a folder above it: a loop", failed=True, source=source)
        return
    if (stat.st_dev, stat.st_ino) in seen:
        yield Skipped(path, "seen already, by a link or another name", source=source)
        return
    seen.add((stat.st_dev, stat.st_ino))
    if path.is_dir():
        yield from _listed(path, source, how, seen)
    elif path.is_file():
        yield read(path, source, how) if how.opened else Readable(path, source)
    else:
        yield Skipped(path, "neither a file nor a folder", source=source)


def _sayable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _listed(path: Path, source: str, how: Walk, seen: set[tuple[int, int]]) -> Iterator[Readable | Skipped]:
    try:
        names = sorted(os.listdir(path), key=lambda name: ((path / name).is_symlink(), name))
    except OSError as error:
        yield Skipped(path, error.strerror or "cannot be read", failed=True, source=source)
        return
    for name in names:
        if name.startswith(".") and _sayable(name):
            yield Skipped(path / name, "hidden", source=_under(source, name))
        elif name in _NOT_WALKED:
            yield Skipped(path / name, "made by a tool", source=_under(source, name))
        else:
            yield from below(path / name, _under(source, name), how, seen)


def _under(source: str, name: str) -> str:
    return name if source == "." else f"{source}/{name}"


def read(path: Path, source: str, how: Walk) -> Readable | Skipped:
    """A file as a document, or why it is none."""
    try:
        size = path.stat().st_size
        if size > FILE_LIMIT_BYTES:
            return Skipped(path, _huge(size), failed=True, source=source)
        content = path.read_bytes()
    except OSError as error:
        return Skipped(path, error.strerror or "cannot be read", failed=True, source=source)
    found = document(path, source, content, root=how.root, binary=how.binary)
    if isinstance(found, Skipped) and found.empty and path.resolve() != how.top:
        return replace(found, reason="empty", failed=False)
    return found


def document(
    path: Path, source: str, content: bytes, *, root: str | None = None, type: str | None = None, binary: bool = False
) -> Readable | Skipped:
    """What these bytes are: a text, or something that memory reads itself (`binary`: whatever they are)."""
    if len(content) > FILE_LIMIT_BYTES:
        return Skipped(path, _huge(len(content)), failed=True, source=source)
    if not content.strip():
        return Skipped(path, f"empty; {STAYS}", failed=True, source=source, empty=True)
    taken = Readable(path, source, root=root, type=type)
    if binary or b"%PDF-" in content[:_HEAD_BYTES]:
        return replace(taken, content=content)
    try:
        text = content.decode("utf-16" if content.startswith(_MARKS) else "utf-8-sig")
    except UnicodeDecodeError:
        if b"\0" not in content[:_PROBE_BYTES]:
            if source.lower().endswith(_READ_BY_MEMORY) or type == "html":
                return replace(taken, content=content)
            reason = f"neither UTF-8 nor UTF-16 with a byte order mark; {STAYS}"
            return Skipped(path, reason, failed=True, source=source)
        text = "\0"
    if "\0" in text:
        return Skipped(path, "binary, of a kind that is not read", failed=True, source=source)
    if not text.strip():
        return Skipped(path, f"empty; {STAYS}", failed=True, source=source, empty=True)
    return replace(taken, text=text)


def _huge(size: int) -> str:
    return f"huge: {size / 2**20:.1f} MiB, more than {FILE_LIMIT_BYTES // 2**20} MiB; split it"
