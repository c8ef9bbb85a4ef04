"""Files of the console: read and compressed when they are first requested."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class Asset:
    """A file as it is served. `etag` is a strong validator of its content."""

    media_type: str
    content: bytes
    compressed: bytes
    etag: str


@cache
def paths() -> dict[str, Path]:
    """Return the files by their path below the folder. No other path is served."""
    found = (path for path in FOLDER.rglob("*") if path.is_file() and path.suffix in _MEDIA_TYPES)
    return {path.relative_to(FOLDER).as_posix(): path for path in found}


def load(name: str) -> Asset:
    """Return a file of `paths` as it is on the disk."""
    return _load(path := paths()[name], path.stat().st_mtime_ns)


@lru_cache(maxsize=100)
def _load(path: Path, _changed_ns: int) -> Asset:
    content = path.read_bytes()
    return Asset(
        media_type=_MEDIA_TYPES[path.suffix],
        content=content,
        compressed=gzip.compress(content, mtime=0),
        etag=f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    )
