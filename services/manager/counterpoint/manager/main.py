"""The manager service."""

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.bus.health import http_server, serve
from counterpoint.manager.handlers import register
from counterpoint.manager.settings import ManagerSettings


async def manage(settings: ManagerSettings) -> None:
    """Handle messages until SIGTERM, and where anything is configured outside, be the gateway to it."""
    service = Service("manager", settings)
    register(service, settings.bounds())
    outside = settings.outside()
    if not outside:
        return await service.run()
    from counterpoint.manager.gateway import Gateway
    from counterpoint.manager.http import application

    gateway = Gateway(service.on_behalf, outside)
    server, _ = http_server(application(gateway), settings.gateway_host, settings.gateway_port)

    async def listen() -> None:
        await gateway.load()
        await serve(server)

    service.also(listen)
    try:
        await service.run()
    finally:
        await gateway.close()


def run() -> None:
    """The process."""
    bus.run(manage(ManagerSettings()))


if __name__ == "__main__":
    run()
