"""Receivers of notifications: their addresses and the rules that choose them.

Pure, except that `load_receivers` reads the file. A secret is in no text form of a receiver.
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, StringConstraints, model_validator

from counterpoint.proto.messages import ProjectName
from counterpoint.proto.tasks import Kind, Priority
from counterpoint.router.notify.digest import DigestTimes
from counterpoint.router.notify.quiet_hours import QuietHours
from counterpoint.router.notify.summary import severity_level
from counterpoint.router.private_file import NamedRow, PrivateFileError, named_models, private_rows
from counterpoint.router.settings import PageUrl, RouterSettings

ReceiverKind = Literal["webhook", "slack", "teams", "pagerduty", "alertmanager", "email", "datahub"]
EventName = Literal[
    "proposed", "escalated", "approval_requested", "approval_decided", "resumed", "completed", "failed", "cancelled"
]
TOLD_BY_DEFAULT: tuple[EventName, ...] = (
    "proposed",
    "escalated",
    "approval_requested",
    "approval_decided",
    "completed",
    "failed",
)
DIGEST_KINDS: tuple[ReceiverKind, ...] = ("slack", "teams", "email")
INCIDENT_KINDS: tuple[Kind, ...] = ("troubleshoot", "develop", "plan")
DEFAULT_NAME = "default"
"""Name of the receiver that `COUNTERPOINT_NOTIFY_URL` sets."""
PREFIX = "whsec_"
_RECEIVERS_LIMIT = 50
_FIXED_URLS: Mapping[str, str] = {"pagerduty": "https://events.pagerduty.com/v2/enqueue", "slack": "https://slack.com"}

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]
UrnPart = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,60}$")]


class ReceiverError(ValueError):
    """A receiver is not configured correctly."""


class Receiver(NamedRow):
    """One receiver and the rules that choose what it is told.

    `secret` signs webhooks (`whsec_...`), is the bot token of Slack, the routing key of PagerDuty, the access token of
    DataHub or the password of the mail server. `projects`, `kinds` and `owners` are what it is told about, all without
    one; `severity` is the lowest priority of a task, `reminder` the lowest number of a reminder of an approval.
    `wait_s` is the time until it is first told of an incident, which may turn out to be part of another one.
    `private`: its host may have a private address. `clearance` is the highest label of text that it gets. `buttons`:
    messages of Slack have buttons, whose replies come to a source of webhooks. `quiet` are the hours in which it is not
    told, `digest` the times at which it is told of many incidents at once. `platform` and `environment` are those of
    jobs in DataHub. `console_url` is the address of the console that its readers use.
    """

    name: Name
    kind: ReceiverKind = "webhook"
    url: SecretStr | None = None
    secret: SecretStr | None = None
    channel: str | None = None
    to: tuple[str, ...] = ()
    sender: str | None = None
    user: str | None = None
    projects: tuple[ProjectName, ...] = ()
    events: tuple[EventName, ...] = TOLD_BY_DEFAULT
    kinds: tuple[Kind, ...] = ()
    owners: tuple[str, ...] = ()
    severity: Priority = "low"
    reminder: Annotated[int, Field(ge=0, le=10)] = 0
    private: bool = False
    wait_s: float = Field(10.0, ge=0, le=3600)
    buttons: bool = False
    quiet: QuietHours | None = None
    platform: UrnPart = "airflow"
    environment: UrnPart = "PROD"
    digest: DigestTimes | None = None
    console_url: PageUrl | None = None
    clearance: Literal["public", "internal", "confidential"] = "internal"

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.kind == "slack" and self.secret is not None and self.channel is None:
            raise ValueError("channel is needed with a bot token")
        if self.kind == "webhook" and self.secret is not None:
            key_of(self.secret.get_secret_value())
        if self.kind == "pagerduty" and self.secret is None:
            raise ValueError("secret is needed: the routing key")
        if self.kind == "email" and not (self.to and self.sender):
            raise ValueError("to and sender are needed")
        if self.digest is not None and self.kind not in DIGEST_KINDS:
            raise ValueError(f"digest is possible for the kinds {', '.join(DIGEST_KINDS)} only")
        parts = urlsplit(self.address)
        schemes = {"smtp", "smtps"} if self.kind == "email" else {"http", "https"}
        if parts.scheme not in schemes or not parts.hostname:
            raise ValueError(f"url must begin with {' or '.join(sorted(schemes))} and name a host")
        if "@" in parts.netloc or not self.address.isascii():
            raise ValueError("url must be ASCII, and may not contain a user or a password")
        try:
            _ = parts.port
        except ValueError:
            # Its text has a part of the URL.
            raise ValueError("url has a port that is no number below 65536") from None
        return self

    @property
    def address(self) -> str:
        """The URL to call."""
        if self.url is not None:
            return self.url.get_secret_value()
        if self.kind in _FIXED_URLS and (self.kind != "slack" or self.secret is not None):
            return _FIXED_URLS[self.kind]
        raise ValueError("url is needed")

    def quiet_until(self, now: datetime, severity: str) -> datetime | None:
        """Return until when a message of a severity waits; None if it does not."""
        if self.quiet is None or severity_level(severity) >= severity_level(self.quiet.unless):
            return None
        return self.quiet.over_at(now)

    def page_of(self, project: str, task_id: str) -> str | None:
        """Return the address of a task in the console; None if that of the console is not known."""
        if self.console_url is None:
            return None
        return f"{self.console_url.rstrip('/')}/#/incident/{quote(task_id, safe='')}?project={quote(project, safe='')}"

    @property
    def is_per_event(self) -> bool:
        """Whether each event is a message of its own, rather than one message per incident that is updated."""
        return self.kind == "webhook"

    @property
    def updates_in_place(self) -> bool:
        """Whether a change replaces what was told before, rather than being told beside it."""
        return self.kind in ("pagerduty", "alertmanager", "datahub") or (
            self.kind == "slack" and self.secret is not None
        )

    @property
    def told_kinds(self) -> tuple[Kind, ...]:
        """The kinds of tasks that it is told about."""
        if self.kind == "datahub":
            return self.kinds or ("troubleshoot",)
        return self.kinds or (get_args(Kind) if self.is_per_event else INCIDENT_KINDS)


def receivers_of(settings: RouterSettings) -> tuple[Receiver, ...]:
    """Return the receivers of the settings. Raises `ReceiverError`."""
    url, secret = settings.notify_url, settings.notify_secret
    receivers = load_receivers(
        url.get_secret_value() if url else None,
        secret.get_secret_value() if secret else None,
        settings.notify_private,
        settings.notify_file,
    )
    known = {"console_url": settings.console_url}
    return tuple(each if each.console_url else each.model_copy(update=known) for each in receivers)


def load_receivers(url: str | None, secret: str | None, private: bool, file: Path | None) -> tuple[Receiver, ...]:
    """Return the receivers of the settings and of the TOML file. Raises `ReceiverError`.

    The file holds credentials: it must not be readable by others.
    """
    rows: list[dict[str, Any]] = []
    if url is not None:
        rows.append({"name": DEFAULT_NAME, "url": url, "secret": secret, "private": private})
    if file is not None:
        try:
            rows += private_rows(file, "receiver")
        except PrivateFileError as error:
            raise ReceiverError(f"{file} {error}") from error
    return named_models(Receiver, rows, "receiver", _RECEIVERS_LIMIT, ReceiverError)


def key_of(secret: str) -> bytes:
    """Return the key in a `whsec_` secret. Raises `ValueError` if it is empty or not base64."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("the secret is not base64 after whsec_") from error
    if not key:
        raise ValueError("the secret is empty")
    return key
