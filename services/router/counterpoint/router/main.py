"""The router: the front door, by HTTP and by the bus."""

from datetime import timedelta

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.router.handlers import register
from counterpoint.router.http import attach
from counterpoint.router.settings import RouterSettings


async def serve(settings: RouterSettings) -> None:
    """Take what comes in until SIGTERM."""
    service = Service("router", settings)
    register(service, timedelta(seconds=settings.idempotency_s))
    attach(service, settings)
    await service.run()


def run() -> None:
    """The process."""
    bus.run(serve(RouterSettings()))


if __name__ == "__main__":
    run()
