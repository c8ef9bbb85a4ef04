"""The router process: intake and HTTP API."""

from datetime import timedelta

from counterpoint import bus
from counterpoint.bus import Service
from counterpoint.router import task_events
from counterpoint.router.api.application import attach
from counterpoint.router.finished_messages import FinishedMessages
from counterpoint.router.handlers import register
from counterpoint.router.intake.running_tasks import RunningTasks
from counterpoint.router.issues import wiring as issues
from counterpoint.router.notify import wiring as notifications
from counterpoint.router.settings import RouterSettings


async def serve(settings: RouterSettings) -> None:
    """Serve until SIGTERM."""
    service = Service("router", settings)
    running_tasks = RunningTasks(settings.tasks_under_way, settings.project_weights)
    register(service, timedelta(seconds=settings.idempotency_s), running_tasks.limiter)
    finished = FinishedMessages()
    service.add_task(finished.run)
    service.on_stop(finished.report)
    notified, synced = notifications.attach(service, settings, finished), issues.attach(service, settings, finished)
    task_events.attach(service, [planner for planner in (notified, synced) if planner], finished)
    attach(service, settings, running_tasks, synced, has_receivers=notified is not None)
    await service.run()


def run() -> None:
    """Run the process."""
    bus.run(serve(RouterSettings()))


if __name__ == "__main__":
    run()
