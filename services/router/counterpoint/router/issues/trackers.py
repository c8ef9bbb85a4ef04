"""Trackers: the repositories whose issues are kept in step with tasks, from a TOML file.

Pure, except that `load_trackers` reads the file. A token is in no text form of a tracker.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, StringConstraints, model_validator

from counterpoint.proto.issues import TrackerName
from counterpoint.proto.messages import ProjectName
from counterpoint.proto.subjects import DEFAULT_PROJECT
from counterpoint.proto.tasks import Kind, Priority
from counterpoint.router.notify.receivers import INCIDENT_KINDS, EventName
from counterpoint.router.private_file import NamedRow, PrivateFileError, named_models, private_rows

ForgeKind = Literal["github", "gitlab", "gitea"]
OPENED_BY_DEFAULT: tuple[EventName, ...] = ("proposed", "escalated", "approval_requested", "failed")
_TRACKERS_LIMIT = 50
_DEFAULT_URLS: Mapping[ForgeKind, str] = {"github": "https://github.com", "gitlab": "https://gitlab.com"}
_API_PATHS: Mapping[ForgeKind, str] = {"github": "/api/v3", "gitlab": "/api/v4", "gitea": "/api/v1"}
_PUBLIC_GITHUB = "https://api.github.com"

Login = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\[\]-]{0,99}$")]
LabelName = Annotated[str, StringConstraints(pattern=r"^[^,\x00-\x1f]{1,50}$", strip_whitespace=True)]
RepositoryPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+$", max_length=300)]


class TrackerError(ValueError):
    """A tracker is not configured correctly."""


class Tracker(NamedRow):
    """One repository of a forge, and the rules that choose the tasks of `project` that become its issues.

    `url` is the address of the forge for people; `api` that of its interface, which follows from `url` without one.
    `events` and plans open an
    issue, all other events update it. `owners` are the logins to assign an issue to, by the owner of the failed job.
    `users` are the principals of people at the forge, by their logins; all others act as `principal`, or not at all.
    `todos`: the steps of a plan are a list in its issue, or issues of their own.
    `close`: an issue is closed when its task has ended. `private`: the host may have a private address. `clearance` is
    the highest label of text that the repository gets.
    """

    name: TrackerName
    kind: ForgeKind
    url: str = ""
    api: str = ""
    repo: RepositoryPath
    token: SecretStr = Field(min_length=1)
    project: ProjectName = DEFAULT_PROJECT
    kinds: tuple[Kind, ...] = INCIDENT_KINDS
    events: tuple[EventName, ...] = OPENED_BY_DEFAULT
    severity: Priority = "low"
    labels: tuple[LabelName, ...] = ("counterpoint",)
    owners: dict[str, Login] = {}
    users: dict[Login, str] = {}
    principal: str | None = None
    todos: Literal["list", "issues"] = "list"
    close: bool = True
    private: bool = False
    clearance: Literal["public", "internal", "confidential"] = "internal"
    poll_s: float = Field(300.0, ge=1, le=86_400)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.web_url:
            raise ValueError(f"url is needed for the kind {self.kind}")
        for name, url in (("url", self.web_url), ("api", self.api_url)):
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii():
                raise ValueError(f"{name} must begin with http or https, name a host, and be ASCII")
            if "@" in parts.netloc or parts.query or parts.fragment:
                raise ValueError(f"{name} may not contain a user, a password, a query or a fragment")
            try:
                _ = parts.port
            except ValueError:
                raise ValueError(f"{name} has a port that is no number below 65536") from None
        if self.kind != "gitlab" and self.repo.count("/") != 1:
            raise ValueError("repo must be an owner and a name")
        if any(part in (".", "..") for part in self.repo.split("/")):
            raise ValueError("repo may not contain . or ..")
        token = self.token.get_secret_value()
        if not token.isascii() or not token.isprintable():
            raise ValueError("token has characters that no header may have")
        return self

    @property
    def web_url(self) -> str:
        """The address of the forge, without a slash at its end."""
        return (self.url or _DEFAULT_URLS.get(self.kind, "")).rstrip("/")

    @property
    def api_url(self) -> str:
        """The address of the forge's interface."""
        if self.api:
            return self.api.rstrip("/")
        if self.web_url == _DEFAULT_URLS["github"]:
            return _PUBLIC_GITHUB
        return self.web_url + _API_PATHS[self.kind]

    @property
    def repository_url(self) -> str:
        """The address of the repository for people."""
        return f"{self.web_url}/{self.repo}"

    @property
    def is_commanded(self) -> bool:
        """Whether anyone at the forge may report an outcome."""
        return bool(self.users or self.principal)

    def principal_of(self, login: str | None) -> str | None:
        """Return the name of the principal that a person at the forge acts as; None for nobody.

        Logins differ in more than the case of their letters.
        """
        wanted = (login or "").lower()
        known = next((name for user, name in self.users.items() if user.lower() == wanted), None)
        return known or self.principal

    def is_of(self, repository_url: str) -> bool:
        """Whether an address for people is that of the repository."""
        return repository_url.rstrip("/").lower() == self.repository_url.lower()


def load_trackers(file: Path | None) -> tuple[Tracker, ...]:
    """Return the trackers of a file that only its owner may read; none without one. Raises `TrackerError`."""
    if file is None:
        return ()
    try:
        rows = private_rows(file, "tracker")
    except PrivateFileError as error:
        raise TrackerError(f"{file} {error}") from error
    return named_models(Tracker, rows, "tracker", _TRACKERS_LIMIT, TrackerError)
