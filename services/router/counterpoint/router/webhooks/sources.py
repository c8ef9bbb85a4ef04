"""Sources of webhooks: their kinds, secrets and mappings, from a TOML file that is read again when it changes."""

import base64
import binascii
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import structlog
from pydantic import BaseModel, ConfigDict, SecretStr, StringConstraints, ValidationError, model_validator

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.messages import ProjectName
from counterpoint.router.private_file import PrivateFileError, first_problem, private_rows

log = structlog.get_logger()

SourceKind = Literal[
    "alertmanager", "grafana", "pagerduty", "github", "gitlab", "gitea", "cloudevents", "slack", "teams", "json"
]
KINDS: tuple[str, ...] = get_args(SourceKind)
FIELDS = frozenset(
    {
        "id",
        "kind",
        "title",
        "description",
        "error_message",
        "job_namespace",
        "job_name",
        "run_id",
        "repo",
        "priority",
        "systems",
        "source_ref",
        "ignore",
        "resolved",
    }
)
"""Fields that a mapping may set. `ignore` and `resolved` are conditions, `id` is the sender's id of the event."""
_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,40}$")

SourceName = Annotated[str, StringConstraints(pattern=_NAME)]


class WebhookSource(BaseModel):
    """A source: how it signs, as which principal it acts, in which project, and how its JSON is read.

    Without a secret its requests need the bearer token of a principal. `map` has JMESPath expressions by field, `items`
    the one that lists the events in a body. `users` are the principals of a chat's users, by their ids, and `clearance`
    is the highest label of text that the chat gets.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: SourceName
    kind: SourceKind = "json"
    secret: SecretStr | None = None
    principal: str | None = None
    project: ProjectName | None = None
    items: str | None = None
    map: dict[str, str] = {}
    users: dict[str, str] = {}
    clearance: Literal["public", "internal", "confidential"] = "internal"

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        from jmespath import compile as parse
        from jmespath.exceptions import JMESPathError

        if self.secret is not None and not self.secret.get_secret_value().removeprefix("whsec_").strip():
            raise ValueError("secret is empty: anyone could sign with it")
        if self.is_chat and (self.secret is None or not self.users):
            raise ValueError(f"secret and users are needed for the kind {self.kind}")
        if self.kind == "teams" and self.secret is not None:
            _check_base64(self.secret.get_secret_value())
        if self.secret is not None and self.principal is None and not self.is_chat:
            raise ValueError("principal is needed with a secret: the name under which its tasks are submitted")
        if self.kind == "json" and "description" not in self.map:
            raise ValueError("map.description is needed for the kind json")
        if unknown := sorted(set(self.map) - FIELDS):
            raise ValueError(f"map.{unknown[0]} is no field; possible are {', '.join(sorted(FIELDS))}")
        for name, expression in [*self.map.items(), *([("items", self.items)] if self.items else [])]:
            try:
                parse(expression)
            except JMESPathError as error:
                raise ValueError(f"{name} is not valid JMESPath: {str(error).splitlines()[0]}") from None
        return self

    @property
    def is_chat(self) -> bool:
        """Whether its requests are replies of people, each with rights of its own."""
        return self.kind in ("slack", "teams")


class WebhookSources:
    """The sources of a file. A kind that the file does not name is a source that needs a token.

    A wrong source prevents the start. In a file that is changed later only the wrong sources are refused, by name; all
    are if it cannot be read at all, because a source that it no longer has must not be served.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._read_at = -1
        self._sources: dict[str, WebhookSource] = {}
        self._wrong: dict[str, str] = {}

    def check(self) -> None:
        """Read the file. Raises `Permanent` `refused` with each source that is not valid."""
        if self._file is None:
            return
        self._read(self._file)
        if self._wrong:
            raise _invalid(*self._wrong.values())

    def find(self, name: str) -> WebhookSource | None:
        """Return a source, None if it is unknown. Raises `Permanent` `refused` for one that is not valid."""
        self._refresh()
        if name in self._wrong:
            raise _invalid(self._wrong[name])
        source = self._sources.get(name)
        if source is None and name in KINDS and name not in ("json", "slack", "teams"):
            return WebhookSource.model_validate({"name": name, "kind": name})
        return source

    def _refresh(self) -> None:
        if self._file is None:
            return
        try:
            if self._file.stat().st_ctime_ns == self._read_at:
                return
        except OSError as error:
            raise _invalid(f"cannot be read: {error.strerror}") from error
        self._read(self._file)
        for problem in self._wrong.values():
            log.error("hooks_file.source_refused", reason=problem)

    def _read(self, file: Path) -> None:
        try:
            # Its mode is part of the time of change, not of that of the content.
            changed_at = file.stat().st_ctime_ns
            rows = private_rows(file, "source")
        except OSError as error:
            raise _invalid(f"cannot be read: {error.strerror}") from error
        except PrivateFileError as error:
            raise _invalid(str(error)) from error
        self._sources, self._wrong = _sorted(rows)
        self._read_at = changed_at


def _sorted(rows: list[Any]) -> tuple[dict[str, WebhookSource], dict[str, str]]:
    """Return the valid sources, and the problems of the others, by name."""
    sources, wrong = dict[str, WebhookSource](), dict[str, str]()
    for number, row in enumerate(rows, 1):
        name = row.get("name") if isinstance(row, dict) else None
        shown = name if isinstance(name, str) and _NAME.fullmatch(name) else f"number {number}"
        try:
            source = WebhookSource.model_validate(row)
        except ValidationError as error:
            where, problem = first_problem(error)
            wrong[shown] = f"source {shown}: {where}{': ' if where else ''}{problem}"
            continue
        if source.name in sources:
            wrong[source.name] = f"source {source.name}: two sources have this name"
        sources[source.name] = source
    return {name: source for name, source in sources.items() if name not in wrong}, wrong


def _check_base64(secret: str) -> None:
    try:
        base64.b64decode(secret, validate=True)
    except binascii.Error:
        raise ValueError("secret is not the security token of Teams, which is base64") from None


def unknown_source() -> Permanent:
    """Return the error for a source that is not configured."""
    problem = "is not a source of COUNTERPOINT_HOOKS_FILE, nor a kind that needs no mapping"
    return Permanent(ErrorCode.NOT_FOUND, (Problem(field="source", problem=problem),))


def _invalid(*problems: str) -> Permanent:
    field = "COUNTERPOINT_HOOKS_FILE"
    return Permanent(ErrorCode.REFUSED, tuple(Problem(field=field, problem=problem) for problem in problems))
