"""The router process: intake and HTTP API."""

from datetime import timedelta

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.router.api.application import attach
from counterpoint.router.handlers import register
from counterpoint.router.intake.running_tasks import RunningTasks
from counterpoint.router.notify import wiring as notifications
from counterpoint.router.settings import RouterSettings


async def serve(settings: RouterSettings) -> None:
    """Serve until SIGTERM."""
    service = Service("router", settings)
    running_tasks = RunningTasks(settings.tasks_under_way, settings.project_weights)
    register(service, timedelta(seconds=settings.idempotency_s), running_tasks.limiter)
    has_receivers = notifications.attach(service, settings)
    attach(service, settings, running_tasks, has_receivers=has_receivers)
    await service.run()


def run() -> None:
    """Run the process."""
    bus.run(serve(RouterSettings()))


if __name__ == "__main__":
    run()
