"""One way to run a service on NATS JetStream."""

from uvloop import run

from counterpoint.bus.service import Service
from counterpoint.bus.settings import BusSettings

__all__ = ["BusSettings", "Service", "run"]
