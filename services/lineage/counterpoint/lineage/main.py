"""The lineage service: OpenLineage by NATS and HTTP, incidents, and the lineage of our own tasks."""

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.bus.health import http_server, serve
from counterpoint.lineage.handlers import register
from counterpoint.lineage.http import application
from counterpoint.lineage.settings import LineageSettings
from counterpoint.lineage.turns import Turns


async def listen(settings: LineageSettings) -> None:
    """Handle messages and requests until SIGTERM."""
    service = Service("lineage", settings)
    limits = settings.limits()
    turns = Turns()
    register(service, limits, turns)
    server, _ = http_server(application(service.memory, limits, turns), settings.lineage_host, settings.lineage_port)
    service.also(lambda: serve(server))
    await service.run()


def run() -> None:
    """The process."""
    bus.run(listen(LineageSettings()))


if __name__ == "__main__":
    run()
