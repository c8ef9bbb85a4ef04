"""Principals: looked up by name, cached until one of them changes."""

import hashlib
from typing import Any, get_args

import structlog
from cachetools import LRUCache
from pydantic import ValidationError

from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import SYSTEM
from counterpoint.proto.delegations import DELEGATED, Delegation, as_deputy
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.memory import Write
from counterpoint.proto.messages import utc_now
from counterpoint.proto.principals import Principal, Role

log = structlog.get_logger()

ADMINISTRATOR = "administrator"
_CACHED = 10_000
"""Maximum number of cached principals, and of cached lists of delegations."""
_NEEDED = "a principal that is known, and neither revoked nor expired"

_BY_NAME = "SELECT body FROM records WHERE store = 'principals' AND body ->> 'name' = $1 AND body IS NOT NULL"

_DELEGATIONS = (
    "SELECT body FROM records WHERE project = $1 AND store = 'delegations' AND body ->> 'to' = $2 AND body IS NOT NULL"
)


def token_id(token: str) -> str:
    """Return the id of the principal's record of a bearer token."""
    return hashlib.sha256(token.encode()).hexdigest()


class Principals:
    """Principals by name."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cached: LRUCache[str, Principal] = LRUCache(_CACHED)
        self._delegated: LRUCache[tuple[str, str], tuple[Delegation, ...]] = LRUCache(_CACHED)
        self._changes = 0

    async def of(self, name: str | None) -> Principal | None:
        """Return the principal of a name, None for no name. Raises `Denied` for one that is unknown, revoked or
        expired."""
        if name is None:
            return None
        principal = self._cached.get(name)
        if principal is None:
            changes = self._changes
            async with self._database.reading(SYSTEM) as connection:
                rows = await connection.fetch(_BY_NAME, name)
            live = [p for p in (_read(row["body"]) for row in rows) if p is not None and p.revoked_at is None]
            if not live:
                raise Denied(ErrorCode.PRINCIPAL, _NEEDED)
            principal = live[0]
            # A change during the lookup may be what the lookup returned.
            if changes == self._changes:
                self._cached[name] = principal
        if not principal.is_active(utc_now()):
            raise Denied(ErrorCode.PRINCIPAL, _NEEDED)
        return principal

    async def acting(self, name: str | None, project: str) -> Principal | None:
        """Return the principal of a name as it may work in a project: with the role of a deputy, while a person who may
        approve has delegated it. Raises `Denied` as `of`."""
        principal = await self.of(name)
        if principal is None or principal.kind != "person" or principal.may(DELEGATED, project):
            return principal
        for delegation in await self._delegations(principal.name, project):
            if delegation.holds(await self._known(delegation.by), principal, utc_now()):
                return as_deputy(principal, project)
        return principal

    async def _known(self, name: str) -> Principal | None:
        try:
            return await self.of(name)
        except Denied:
            return None

    async def _delegations(self, to: str, project: str) -> tuple[Delegation, ...]:
        known = self._delegated.get((project, to))
        if known is None:
            changes = self._changes
            async with self._database.reading(project) as connection:
                rows = await connection.fetch(_DELEGATIONS, project, to)
            known = tuple(Delegation.model_validate(row["body"]) for row in rows)
            if changes == self._changes:
                self._delegated[project, to] = known
        return known

    def clear(self) -> None:
        """Take note of a change of a principal's or a delegation's record."""
        self._changes += 1
        self._cached.clear()
        self._delegated.clear()

    @staticmethod
    def administrator(admin_token: str) -> Write:
        """Return the record of the first administrator, whose token comes from the environment."""
        first = Principal(name=ADMINISTRATOR, kind="person", projects=("*",), roles=get_args(Role))
        return Write(
            store="principals", id=token_id(admin_token), body=first.model_dump(mode="json", exclude_none=True)
        )


def _read(body: Any) -> Principal | None:
    """Return the principal of a record; one without rights if the record is invalid."""
    try:
        return Principal.model_validate(body)
    except ValidationError as error:
        log.warning("record.unreadable", store="principals", problems=error.error_count())
        return None
