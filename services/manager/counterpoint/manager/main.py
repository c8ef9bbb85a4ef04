"""The manager service."""

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.manager.handlers import register
from counterpoint.manager.settings import ManagerSettings


def run() -> None:
    """The process."""
    settings = ManagerSettings()
    service = Service("manager", settings)
    register(service, settings.bounds())
    bus.run(service.run())


if __name__ == "__main__":
    run()
