"""A shelf: what an embedded engine keeps of each project in a folder of its own, a few of them open at a time."""

import asyncio
import fcntl
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from counterpoint.proto.errors import Away

log = structlog.get_logger()

H = TypeVar("H")
_Key = tuple[str, bool]


class _Broken(Exception):
    """The contents of a folder cannot be opened."""


@dataclass(slots=True)
class _Book(Generic[H]):
    handle: H
    path: Path
    users: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class HandlePool(Generic[H]):
    """Opens what is asked for, in a thread, and closes what was not used for longest when more than `keep` are open.

    What cannot be opened is put aside, where somebody may look at it, and begun anew. One process at a time has the
    shelf: the engines are not made for two, and not all of them notice.
    """

    def __init__(self, root: Path, opens: Callable[[Path], H], closes: Callable[[H], None], *, keep: int) -> None:
        self._root = root
        self._opens = opens
        self._closes = closes
        self._keep = keep
        self._books: OrderedDict[_Key, _Book[H]] = OrderedDict()
        self._locks: dict[_Key, asyncio.Lock] = {}
        self._held: int | None = None
        self._holding = threading.Lock()

    @asynccontextmanager
    async def taken(self, project: str, draft: bool = False) -> AsyncIterator[H]:
        """The project's handle; it stays open inside the block. Raises `Away`."""
        key = (project, draft)
        async with self._lock(key):
            book = self._books.get(key)
            if book is not None and not book.path.exists():
                await self._shut(key)
                raise Away(f"{book.path.parent.name} of {project} was removed from the disk")
            if book is None:
                book = self._books[key] = await self._open(key)
            book.users += 1
            book.idle.clear()
            self._books.move_to_end(key)
        try:
            yield book.handle
        finally:
            book.users -= 1
            if not book.users:
                book.idle.set()
        await self._thin()

    async def drop(self, project: str, draft: bool = False) -> None:
        """Close and delete."""
        async with self._lock((project, draft)):
            await self._shut((project, draft))
            await asyncio.to_thread(shutil.rmtree, self._path(project, draft), True)

    async def swap(self, project: str) -> None:
        """Put the draft in the place of what was there. Whoever asks waits until that is done."""
        async with self._lock((project, True)), self._lock((project, False)):
            await self._shut((project, True))
            await self._shut((project, False))
            live, draft = self._path(project, False), self._path(project, True)
            await asyncio.to_thread(_replace, live, draft)

    async def close(self) -> None:
        """Close all."""
        for key in list(self._books):
            async with self._lock(key):
                await self._shut(key)
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _path(self, project: str, draft: bool) -> Path:
        return self._root / project / ("draft" if draft else "live")

    def _lock(self, key: _Key) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def _open(self, key: _Key) -> _Book[H]:
        path = self._path(*key)
        try:
            try:
                return _Book(await asyncio.to_thread(self._made, path), path)
            except _Broken as broken:
                log.warning("tier.broken", path=str(path), reason=str(broken)[:200])
                await asyncio.to_thread(_aside, path)
                return _Book(await asyncio.to_thread(self._made, path), path)
        except (OSError, _Broken) as away:
            raise Away(f"{self._root.name} of {key[0]} cannot be opened: {away}"[:300]) from away

    def _made(self, path: Path) -> H:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._hold()
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            return self._opens(path)
        except Exception as broken:
            # What an engine raises for a damaged folder is not said anywhere.
            raise _Broken(str(broken)) from broken

    def _hold(self) -> None:
        with self._holding:
            if self._held is not None:
                return
            held = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(held)
                raise
            self._held = held
            # What a killed process left of a rebuild nobody follows, and what is erased would stay in it.
            for left in (*self._root.glob("*/draft"), *self._root.glob("*/old")):
                shutil.rmtree(left)

    async def _shut(self, key: _Key) -> None:
        """Called under the lock of `key`."""
        book = self._books.pop(key, None)
        if book is None:
            return
        if book.users:
            await book.idle.wait()
        await asyncio.to_thread(self._closes, book.handle)

    async def _thin(self) -> None:
        while len(self._books) > self._keep:
            key = next((key for key, book in self._books.items() if not book.users), None)
            if key is None:
                return
            async with self._lock(key):
                if key in self._books and not self._books[key].users:
                    await self._shut(key)


def _replace(live: Path, draft: Path) -> None:
    old = live.with_name("old")
    shutil.rmtree(old, ignore_errors=True)
    if live.exists():
        live.rename(old)
    draft.rename(live)
    shutil.rmtree(old, ignore_errors=True)


def _aside(path: Path) -> None:
    """One broken copy is kept, the last one."""
    broken = path.with_name("broken")
    shutil.rmtree(broken, ignore_errors=True)
    path.rename(broken)
