"""The developer service."""

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.developer.handlers import register
from counterpoint.developer.settings import DeveloperSettings


def run() -> None:
    """Run the process."""
    settings = DeveloperSettings()
    service = Service("developer", settings)
    register(service, settings)
    bus.run(service.run())


if __name__ == "__main__":
    run()
