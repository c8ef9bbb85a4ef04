"""The router: the front door, by HTTP and by the bus."""

from datetime import timedelta

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.router.handlers import register
from counterpoint.router.http import attach
from counterpoint.router.settings import RouterSettings
from counterpoint.router.under_way import UnderWay


async def serve(settings: RouterSettings) -> None:
    """Take what comes in until SIGTERM."""
    service = Service("router", settings)
    under_way = UnderWay(settings.tasks_under_way, settings.project_weights)
    register(service, timedelta(seconds=settings.idempotency_s), under_way.turns)
    attach(service, settings, under_way)
    await service.run()


def run() -> None:
    """The process."""
    bus.run(serve(RouterSettings()))


if __name__ == "__main__":
    run()
