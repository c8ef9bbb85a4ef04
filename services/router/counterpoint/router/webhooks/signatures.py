"""Signatures of webhooks over the raw body, and the sender's id of a delivery. Pure."""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.router.intake.submissions import event_key
from counterpoint.router.webhooks.sources import SourceKind

TOLERANCE_S = 300
"""Largest difference between a signed timestamp and now."""
_DELIVERY_HEADERS: Mapping[str, tuple[str, ...]] = {
    "github": ("x-github-delivery",),
    "gitea": ("x-forgejo-delivery", "x-gitea-delivery", "x-gogs-delivery"),
    "gitlab": ("webhook-id", "idempotency-key", "x-gitlab-webhook-uuid"),
}


def verify(kind: SourceKind, secret: str, headers: Mapping[str, str], content: bytes, now: datetime) -> None:
    """Check the signature of a request by the rules of its sender. Raises `Denied` `unauthenticated`."""
    if not _is_signed(kind, secret, headers, content, now):
        raise Denied(ErrorCode.UNAUTHENTICATED, "a valid and recent signature of the source")


def delivery_id(kind: SourceKind, headers: Mapping[str, str]) -> str | None:
    """Return the sender's id of a delivery in the headers, if there is one."""
    names = _DELIVERY_HEADERS.get(kind, ("webhook-id",))
    return next((headers[name] for name in names if headers.get(name)), None)


def signed_id(source: str, headers: Mapping[str, str], content: bytes) -> str:
    """Return the id of a request of a chat, made of all that its signature covers: a repeated one has the same."""
    stamp = headers.get("x-slack-request-timestamp", "")
    return event_key(f"hooks/{source}/request", f"{stamp}:{hashlib.sha256(content).hexdigest()}")


def _is_signed(kind: SourceKind, secret: str, headers: Mapping[str, str], content: bytes, now: datetime) -> bool:
    match kind:
        case "github":
            return _hex(secret, content, headers.get("x-hub-signature-256", "").removeprefix("sha256="))
        case "gitea":
            given = headers.get("x-forgejo-signature") or headers.get("x-gitea-signature", "")
            return _hex(secret, content, given)
        case "gitlab" if "webhook-signature" not in headers:
            return hmac.compare_digest(headers.get("x-gitlab-token", "").encode(), secret.encode())
        case "pagerduty":
            given_all = headers.get("x-pagerduty-signature", "").split(",")
            return any(_hex(secret, content, each.strip().removeprefix("v1=")) for each in given_all[:10])
        case "slack":
            stamp = headers.get("x-slack-request-timestamp", "")
            given = headers.get("x-slack-signature", "").removeprefix("v0=")
            return _is_recent(stamp, now) and _hex(secret, b":".join((b"v0", stamp.encode(), content)), given)
        case "teams":
            return _teams(secret, headers, content)
        case "grafana" if "webhook-signature" not in headers:
            stamp = headers.get("x-grafana-alerting-timestamp", "")
            signed = stamp.encode() + b":" + content
            return _is_recent(stamp, now) and _hex(secret, signed, headers.get("x-grafana-alerting-signature", ""))
        case _:
            return _standard(secret, headers, content, now)


def _standard(secret: str, headers: Mapping[str, str], content: bytes, now: datetime) -> bool:
    """Whether a request is signed as Standard Webhooks says. A key without `whsec_` may be in base64 or plain."""
    sender_id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not sender_id or not _is_recent(stamp, now):
        return False
    keys = [secret.encode()]
    with suppress(ValueError):
        keys.append(base64.b64decode(secret.removeprefix("whsec_"), validate=True))
    signed = b".".join((sender_id.encode(), stamp.encode(), content))
    expected = [b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in keys]
    given = headers.get("webhook-signature", "").encode().split()
    return any(hmac.compare_digest(one, each) for each in expected for one in given[:10])


def _teams(secret: str, headers: Mapping[str, str], content: bytes) -> bool:
    """Whether an outgoing webhook of Teams has signed; its security token is the key in base64."""
    try:
        key = base64.b64decode(secret, validate=True)
    except binascii.Error:
        return False
    expected = b"HMAC " + base64.b64encode(hmac.digest(key, content, hashlib.sha256))
    return hmac.compare_digest(expected, headers.get("authorization", "").encode())


def _is_recent(stamp: str, now: datetime) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,12}", stamp)) and abs(now.timestamp() - int(stamp)) <= TOLERANCE_S


def _hex(secret: str, content: bytes, given: str) -> bool:
    expected = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), given.lower().encode())
