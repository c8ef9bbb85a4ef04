"""Registration of the handlers of notifications. HTTP clients are loaded only if a receiver is configured."""

from typing import TYPE_CHECKING, Any

from counterpoint.bus import Service
from counterpoint.bus.processor import Handler
from counterpoint.client import Memory
from counterpoint.proto.memory import Commit
from counterpoint.proto.messages import Message
from counterpoint.proto.notifications import NotificationDue
from counterpoint.router.notify.deliveries import undeliverable
from counterpoint.router.notify.receivers import load_receivers
from counterpoint.router.settings import RouterSettings

if TYPE_CHECKING:
    from counterpoint.router.notify.handlers import Notifications


def attach(service: Service, settings: RouterSettings) -> "Notifications | None":
    """Handle deliveries that are due, and return what plans them, None without a receiver.

    Raises `ReceiverError` for receivers that are not configured correctly.
    """
    url, secret = settings.notify_url, settings.notify_secret
    receivers = load_receivers(
        url.get_secret_value() if url else None,
        secret.get_secret_value() if secret else None,
        settings.notify_private,
        settings.notify_file,
    )
    if not receivers:
        service.on(NotificationDue)(finished(_refuse))
        return None
    from counterpoint.router.notify.caller import Caller
    from counterpoint.router.notify.handlers import Notifications

    notifications = Notifications(receivers, Caller(settings.notify_timeout_s))
    service.on(NotificationDue)(finished(notifications.on_due))
    return notifications


def finished(handler: Handler[Any]) -> Handler[Any]:
    """Return a handler that commits also if there is nothing to do.

    A message of the last days that its consumer has not finished is published again when its stream has dropped it.
    """

    async def handle(message: Message, memory: Memory) -> Commit:
        commit: Commit = await handler(message, memory)
        if not (commit.writes or commit.messages or memory.stepped):
            await memory.step(commit)
        return commit

    return handle


async def _refuse(message: NotificationDue, memory: Memory) -> Commit:
    """Dead-letter a delivery of an earlier configuration, so that it can be retried under another."""
    raise undeliverable(message.delivery_id, "has no receiver: none is configured")
