"""Registration of the handlers of notifications. HTTP clients are loaded only if a receiver is configured."""

from typing import TYPE_CHECKING

from counterpoint.bus import Service
from counterpoint.client import Memory
from counterpoint.proto.memory import Commit
from counterpoint.proto.notifications import NotificationDue
from counterpoint.router.finished_messages import FinishedMessages
from counterpoint.router.notify.deliveries import undeliverable
from counterpoint.router.notify.receivers import receivers_of
from counterpoint.router.settings import RouterSettings

if TYPE_CHECKING:
    from counterpoint.router.notify.handlers import Notifications


def attach(service: Service, settings: RouterSettings, finished: FinishedMessages) -> "Notifications | None":
    """Handle deliveries that are due, and return what plans them, None without a receiver.

    Raises `ReceiverError` for receivers that are not configured correctly.
    """
    receivers = receivers_of(settings)
    if not receivers:
        service.on(NotificationDue)(finished.of(_refuse))
        return None
    from counterpoint.router.notify.caller import Caller
    from counterpoint.router.notify.handlers import Notifications

    notifications = Notifications(receivers, Caller(settings.notify_timeout_s))
    service.on(NotificationDue)(finished.of(notifications.on_due))
    return notifications


async def _refuse(message: NotificationDue, memory: Memory) -> Commit:
    """Dead-letter a delivery of an earlier configuration, so that it can be retried under another."""
    raise undeliverable(message.delivery_id, "has no receiver: none is configured")
