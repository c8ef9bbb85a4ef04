"""One way to run a service on NATS JetStream."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from counterpoint.bus import unused_packages

if TYPE_CHECKING:
    from uvloop import run

    from counterpoint.bus.service import Service
    from counterpoint.bus.settings import BusSettings

__all__ = ["BusSettings", "Service", "run"]

_MODULES = {"BusSettings": "counterpoint.bus.settings", "Service": "counterpoint.bus.service", "run": "uvloop"}


unused_packages.import_structlog()


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: the jobs before a service need its log format, not FastStream."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Service":
        unused_packages.import_nats()
    return getattr(import_module(_MODULES[name]), name)
