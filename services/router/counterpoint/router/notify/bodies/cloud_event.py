"""Plain CloudEvents, signed as Standard Webhooks says.

The signature is written here rather than taken from the `standardwebhooks` package: it is one HMAC, and that package
would add two dependencies to the router.
"""

import base64
import hashlib
import hmac
import json
from datetime import datetime

from counterpoint.router.notify.deliveries import Delivery
from counterpoint.router.notify.outbound import Call
from counterpoint.router.notify.receivers import Receiver, key_of


def cloud_event_call(receiver: Receiver, delivery_id: str, delivery: Delivery, now: datetime) -> Call:
    """Return the POST of an event in structured mode. Its `webhook-id` is the same at every attempt."""
    content = json.dumps(delivery.event, separators=(",", ":"), ensure_ascii=False).encode()
    headers = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    headers |= signed(receiver.secret.get_secret_value() if receiver.secret else None, delivery_id, now, content)
    return Call(receiver.address, content, headers)


def signed(secret: str | None, webhook_id: str, now: datetime, content: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks; without a secret there is no signature."""
    stamp = str(int(now.timestamp()))
    headers = {"webhook-id": webhook_id, "webhook-timestamp": stamp}
    if secret is not None:
        headers["webhook-signature"] = f"v1,{signature(secret, webhook_id, stamp, content)}"
    return headers


def signature(secret: str, webhook_id: str, stamp: str, content: bytes) -> str:
    """Return the base64 HMAC-SHA256 of id, timestamp and body under a `whsec_` secret."""
    signed_content = b".".join((webhook_id.encode(), stamp.encode(), content))
    return base64.b64encode(hmac.digest(key_of(secret), signed_content, hashlib.sha256)).decode()
