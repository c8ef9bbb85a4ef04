"""The lineage service: OpenLineage by NATS and HTTP, incidents, and the lineage of our own tasks."""

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.bus.health import http_server, serve
from counterpoint.lineage.handlers import register
from counterpoint.lineage.marquez.api import application
from counterpoint.lineage.project_locks import ProjectLocks
from counterpoint.lineage.settings import LineageSettings


async def listen(settings: LineageSettings) -> None:
    """Handle messages and requests until SIGTERM."""
    service = Service("lineage", settings)
    limits = settings.limits()
    locks = ProjectLocks()
    register(service, limits, locks)
    server, _ = http_server(
        application(service.memory, limits, locks),
        settings.lineage_host,
        settings.lineage_port,
        certificate=settings.tls_cert,
        key=settings.tls_key,
        listener_fd=settings.lineage_fd,
    )
    service.on_stop(server.finish)
    service.add_task(lambda: serve(server))
    await service.run()


def run() -> None:
    """Run the process."""
    bus.run(listen(LineageSettings()))


if __name__ == "__main__":
    run()
