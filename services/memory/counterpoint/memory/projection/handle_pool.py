"""Handle pool: the folders in which an embedded engine keeps each project, a few of them open at a time."""

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


class _BrokenFolder(Exception):
    """The contents of a folder cannot be opened."""


@dataclass(slots=True)
class _OpenHandle(Generic[H]):
    handle: H
    path: Path
    users: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class HandlePool(Generic[H]):
    """Open handles by project, opened and closed in a thread. When more than `keep` are open, the least recently used
    one without users is closed. No cache of cachetools does that: it would evict a handle in use, and cannot await.

    A folder that cannot be opened is moved aside for inspection and created again. A lock file keeps other processes
    out: the engines are not made for two, and not all of them notice.
    """

    def __init__(self, root: Path, opens: Callable[[Path], H], closes: Callable[[H], None], *, keep: int) -> None:
        self._root = root
        self._opens = opens
        self._closes = closes
        self._keep = keep
        self._open_handles: OrderedDict[_Key, _OpenHandle[H]] = OrderedDict()
        self._locks: dict[_Key, asyncio.Lock] = {}
        self._lock_file: int | None = None
        self._locking = threading.Lock()

    @asynccontextmanager
    async def handle(self, project: str, draft: bool = False) -> AsyncIterator[H]:
        """Return the handle of a project, open until the block ends. Raises `Away`."""
        key = (project, draft)
        async with self._lock(key):
            opened = self._open_handles.get(key)
            if opened is not None and not opened.path.exists():
                await self._close_handle(key)
                raise Away(f"{opened.path.parent.name} of {project} was removed from the disk")
            if opened is None:
                opened = self._open_handles[key] = await self._open(key)
            opened.users += 1
            opened.idle.clear()
            self._open_handles.move_to_end(key)
        try:
            yield opened.handle
        finally:
            opened.users -= 1
            if not opened.users:
                opened.idle.set()
        await self._evict()

    async def drop(self, project: str, draft: bool = False) -> None:
        """Close a handle and delete its folder."""
        async with self._lock((project, draft)):
            await self._close_handle((project, draft))
            await asyncio.to_thread(shutil.rmtree, self._path(project, draft), True)

    async def swap(self, project: str) -> None:
        """Replace the live folder by the draft; other users of the project wait meanwhile."""
        async with self._lock((project, True)), self._lock((project, False)):
            await self._close_handle((project, True))
            await self._close_handle((project, False))
            live, draft = self._path(project, False), self._path(project, True)
            await asyncio.to_thread(_replace, live, draft)

    async def close(self) -> None:
        """Close all handles, and release the lock file."""
        for key in list(self._open_handles):
            async with self._lock(key):
                await self._close_handle(key)
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _path(self, project: str, draft: bool) -> Path:
        return self._root / project / ("draft" if draft else "live")

    def _lock(self, key: _Key) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def _open(self, key: _Key) -> _OpenHandle[H]:
        path = self._path(*key)
        try:
            try:
                return _OpenHandle(await asyncio.to_thread(self._create, path), path)
            except _BrokenFolder as broken:
                log.warning("tier.broken", path=str(path), reason=str(broken)[:200])
                await asyncio.to_thread(_move_aside, path)
                return _OpenHandle(await asyncio.to_thread(self._create, path), path)
        except (OSError, _BrokenFolder) as away:
            raise Away(f"{self._root.name} of {key[0]} cannot be opened: {away}"[:300]) from away

    def _create(self, path: Path) -> H:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_root()
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            return self._opens(path)
        except Exception as broken:
            # Engines do not document what they raise for a damaged folder.
            raise _BrokenFolder(str(broken)) from broken

    def _lock_root(self) -> None:
        with self._locking:
            if self._lock_file is not None:
                return
            descriptor = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                raise
            self._lock_file = descriptor
            # Nobody continues the rebuild of a killed process, and erased content would stay in its draft.
            for draft in (*self._root.glob("*/draft"), *self._root.glob("*/old")):
                shutil.rmtree(draft)

    async def _close_handle(self, key: _Key) -> None:
        """Close a handle once it has no users. The caller holds the lock of `key`."""
        opened = self._open_handles.pop(key, None)
        if opened is None:
            return
        if opened.users:
            await opened.idle.wait()
        await asyncio.to_thread(self._closes, opened.handle)

    async def _evict(self) -> None:
        while len(self._open_handles) > self._keep:
            key = next((key for key, opened in self._open_handles.items() if not opened.users), None)
            if key is None:
                return
            async with self._lock(key):
                if key in self._open_handles and not self._open_handles[key].users:
                    await self._close_handle(key)


def _replace(live: Path, draft: Path) -> None:
    old = live.with_name("old")
    shutil.rmtree(old, ignore_errors=True)
    if live.exists():
        live.rename(old)
    draft.rename(live)
    shutil.rmtree(old, ignore_errors=True)


def _move_aside(path: Path) -> None:
    """Move a broken folder aside, in place of the previous one."""
    broken = path.with_name("broken")
    shutil.rmtree(broken, ignore_errors=True)
    path.rename(broken)
