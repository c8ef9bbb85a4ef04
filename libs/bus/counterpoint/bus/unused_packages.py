"""Packages that dependencies import if they are installed, and that none of our services and supervisors uses.

Left out, they save nine megabytes in each process. Other code may import them afterwards.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

_WEBSOCKETS = ("ws:", "wss:")


@contextmanager
def left_out(*names: str) -> Iterator[None]:
    """Make packages that are not loaded yet look as if they were not installed, for the length of the block."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def import_structlog() -> None:
    """Import structlog without rich, by which it would format tracebacks in colours."""
    with left_out("rich"):
        import_module("structlog")


def import_nats() -> None:
    """Import the NATS client without aiohttp, which it only needs for servers behind a WebSocket."""
    with left_out(*() if os.environ.get("COUNTERPOINT_NATS_URL", "").startswith(_WEBSOCKETS) else ("aiohttp",)):
        import_module("nats")
