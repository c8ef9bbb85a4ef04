"""The manager service."""

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.bus.health import http_server, serve
from counterpoint.manager.handlers import register
from counterpoint.manager.settings import ManagerSettings


async def manage(settings: ManagerSettings) -> None:
    """Handle messages until SIGTERM, and serve the gateway where a provider is configured."""
    service = Service("manager", settings)
    register(service, settings.task_limits(), gateway=settings.summarizer())
    limits = settings.provider_limits()
    if not limits:
        return await service.run()
    from counterpoint.manager.gateway.api import application
    from counterpoint.manager.gateway.gateway import ModelGateway

    gateway = ModelGateway(service.memory_for, limits)
    finish_s = max(1, int(settings.drain_s) - 1)
    server, _ = http_server(application(gateway), settings.gateway_host, settings.gateway_port, finish_s=finish_s)

    async def listen() -> None:
        await gateway.load()
        await serve(server)

    service.on_stop(server.finish)
    service.add_task(listen)
    try:
        await service.run()
    finally:
        await gateway.close()


def run() -> None:
    """Run the process."""
    bus.run(manage(ManagerSettings()))


if __name__ == "__main__":
    run()
