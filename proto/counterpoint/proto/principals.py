"""Principals: who may ask. Every HTTP token, NATS user and MCP client is one."""

from typing import Literal

from counterpoint.proto.messages import Shape, Time

Role = Literal["submit", "report", "read", "ingest", "override", "approve", "operate", "audit", "admin"]
PrincipalKind = Literal["person", "agent", "system"]


class Principal(Shape):
    """A named asker. `projects` holds project names, or `*` for all of them. The record's id is the token's sha256."""

    name: str
    kind: PrincipalKind
    projects: tuple[str, ...]
    roles: tuple[Role, ...]
    created_at: Time | None = None
    revoked_at: Time | None = None

    def may(self, role: Role, project: str) -> bool:
        """Whether this principal holds `role` in `project`. `shared` is read by all and written by its administrators,
        who are not those of another project."""
        if self.revoked_at is not None or role not in self.roles:
            return False
        named = "*" in self.projects or project in self.projects
        if project == "shared":
            return role == "read" or (named and "admin" in self.roles)
        return named
