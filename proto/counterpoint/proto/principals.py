"""Principals: the identities of HTTP tokens, NATS users and MCP clients."""

from datetime import datetime
from typing import Literal

from counterpoint.proto.messages import Shape, Time

Role = Literal["submit", "report", "read", "ingest", "override", "approve", "operate", "audit", "admin"]
PrincipalKind = Literal["person", "agent", "system"]


class Principal(Shape):
    """A named identity. `projects` are project names, or `*` for all. The record's id is the token's sha256, which is
    refused from `expires_at` on."""

    name: str
    kind: PrincipalKind
    projects: tuple[str, ...]
    roles: tuple[Role, ...]
    created_at: Time | None = None
    revoked_at: Time | None = None
    expires_at: Time | None = None

    def is_active(self, now: datetime) -> bool:
        """Whether the principal is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def may(self, role: Role, project: str) -> bool:
        """Whether this principal has `role` in `project`.

        All principals may read `shared`; only administrators named for it have its other roles.
        """
        if self.revoked_at is not None or role not in self.roles:
            return False
        named = "*" in self.projects or project in self.projects
        if project == "shared":
            return role == "read" or (named and "admin" in self.roles)
        return named
