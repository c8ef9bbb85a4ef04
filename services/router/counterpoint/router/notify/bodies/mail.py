"""E-mail by SMTP: one message per state of an incident, all in one thread."""

import asyncio
import smtplib
import socket
import ssl
import time
from contextlib import suppress
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import urlsplit

from counterpoint.router.notify.deliveries import Delivery
from counterpoint.router.notify.digest import IncidentDigest
from counterpoint.router.notify.outbound import checked_address
from counterpoint.router.notify.receivers import Receiver
from counterpoint.router.notify.summary import IncidentSummary, shortened

_PORTS = {"smtp": 25, "smtps": 465}
_DOMAIN = "counterpoint.invalid"


class _Pinned(smtplib.SMTP):
    """A connection to an address that was checked; the host's name is used for TLS.

    All answers together have `timeout_s`.
    """

    def __init__(self, host: str, port: int, address: str, timeout_s: float, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._tls = tls
        self._ends_at_s = time.monotonic() + timeout_s
        super().__init__(host, port, timeout=timeout_s)

    def getreply(self) -> tuple[int, bytes]:
        """Read an answer in the time that is left. Raises `TimeoutError` without any."""
        left_s = self._ends_at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if self.sock is not None:
            self.sock.settimeout(left_s)
        return super().getreply()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connected = socket.create_connection((self._address, port), timeout)
        return self._tls.wrap_socket(connected, server_hostname=host) if self._tls else connected


def message(
    receiver: Receiver, delivery_id: str, delivery: Delivery, incident: IncidentSummary, now: datetime
) -> EmailMessage:
    """Return the mail of one revision. Its Message-ID is the same at every attempt."""
    subject = f"[{incident.project}] {incident.headline}"
    page = receiver.page_of(incident.project, incident.task_id)
    mail = _mail(receiver, f"{delivery_id}.{delivery.revision}", subject, text(incident, page), now)
    if delivery.revision > 1:
        mail["In-Reply-To"] = mail["References"] = f"<{delivery_id}.1@{_DOMAIN}>"
    return mail


def _mail(receiver: Receiver, message_id: str, subject: str, content: str, now: datetime) -> EmailMessage:
    mail = EmailMessage()
    mail["From"] = receiver.sender or ""
    mail["To"] = ", ".join(receiver.to)
    mail["Subject"] = " ".join(shortened(subject, 200).split())
    mail["Date"] = format_datetime(now)
    mail["Message-ID"] = f"<{message_id}@{_DOMAIN}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(content)
    return mail


def mail_of(receiver: Receiver, delivery_id: str, delivery: Delivery, now: datetime) -> EmailMessage:
    """Return the mail of a delivery: of one incident, or of a digest."""
    if delivery.digest is not None:
        return _mail(receiver, f"{delivery_id}.1", delivery.digest.headline, digest_text(delivery.digest), now)
    assert delivery.incident is not None
    return message(receiver, delivery_id, delivery, delivery.incident, now)


def digest_text(digest: IncidentDigest) -> str:
    """Return the text of the mail of a digest."""
    lines = "\n".join(f"- {line}" for line in digest.lines)
    return f"{digest.headline}\n\n{lines}\n\ncounterpoint tasks --project {digest.project}"


def text(incident: IncidentSummary, page: str | None = None) -> str:
    """Return the text of a mail, with the address of its page in the console if it is known."""
    parts = [incident.headline, incident.recurrence or ""]
    parts.append("\n".join(f"{name}: {value}" for name, value in incident.facts))
    if incident.error and not incident.is_over:
        parts.append(f"Error:\n{incident.error}")
    if incident.proposal:
        parts.append(f"Proposal:\n{incident.proposal}")
    if incident.needs:
        parts.append("Needs:\n" + "\n".join(f"- {need}" for need in incident.needs))
    if incident.impact:
        parts.append(f"Will be late: {incident.impact}")
    parts += [page] if page else []
    parts.append(f"counterpoint show {incident.task_id} --project {incident.project}")
    return "\n\n".join(part for part in parts if part)


async def send_mail(receiver: Receiver, mail: EmailMessage, timeout_s: float) -> None:
    """Hand a mail to the server. A password is sent over TLS only. Raises `OSError` or `BlockedAddress`."""
    parts = urlsplit(receiver.address)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    async with asyncio.timeout(timeout_s):
        address = await checked_address(host, port, receiver.private)
    await asyncio.to_thread(_send, receiver, mail, (host, port, address), parts.scheme == "smtps", timeout_s)


def _send(receiver: Receiver, mail: EmailMessage, where: tuple[str, int, str], smtps: bool, timeout_s: float) -> None:
    host, port, address = where
    context = ssl.create_default_context()
    with _Pinned(host, port, address, timeout_s, context if smtps else None) as server:
        server.ehlo()
        if not smtps and server.has_extn("starttls"):
            server.starttls(context=context)
            server.ehlo()
        if receiver.secret is not None and receiver.user is not None:
            if not isinstance(server.sock, ssl.SSLSocket):
                raise smtplib.SMTPNotSupportedError("the server does not offer TLS, and a password would be sent")
            server.login(receiver.user, receiver.secret.get_secret_value())
        server.send_message(mail)
        # The mail is accepted, however the connection ends.
        with suppress(OSError):
            server.quit()
        server.close()
