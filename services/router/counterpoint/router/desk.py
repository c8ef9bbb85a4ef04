"""The desk: what every HTTP request is answered with, and on whose behalf."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from counterpoint.proto import subjects
from counterpoint.proto.errors import Conflict, Denied, Permanent, Problem
from counterpoint.proto.memory import Commit, Found, List, LogAfter
from counterpoint.proto.messages import ProjectName
from counterpoint.proto.principals import Principal, Role
from counterpoint.recall import Memory
from counterpoint.router.askers import Askers, MemoryFor
from counterpoint.router.hub import Hub
from counterpoint.router.interventions import Sayer
from counterpoint.router.settings import RouterSettings
from counterpoint.router.under_way import UnderWay

Result = TypeVar("Result")
_ATTEMPTS = 5
_BEARER = HTTPBearer(auto_error=False, description="The token of a principal.")


@dataclass(frozen=True)
class Desk:
    """The router's own: memory, principals, the hub, the tasks under way and the settings."""

    memory: MemoryFor
    askers: Askers
    hub: Hub
    under_way: UnderWay
    settings: RouterSettings


@dataclass(frozen=True)
class Asked:
    """One request: the desk, who asks, and in which project. `named` says that the URL named the project."""

    desk: Desk
    principal: Principal
    project: str
    named: bool

    def within(self, body: Any) -> "Asked":
        """The same in the project that the body names, if any. Raises `Permanent` when the URL named another."""
        project = body.get("project") if isinstance(body, dict) else None
        if project is None or project == self.project:
            return self
        if not isinstance(project, str) or not subjects.PROJECT_PATTERN.fullmatch(project):
            raise Permanent("invalid", (Problem(field="project", problem="is no project name"),))
        if self.named:
            problem = Problem(field="project", problem=f"is not the project it was sent to, {self.project}")
            raise Permanent("invalid", (problem,))
        return replace(self, project=project)

    def may(self, role: Role) -> bool:
        """Whether the asker holds a role in the project."""
        return self.principal.may(role, self.project)

    def needs(self, *roles: Role) -> None:
        """Raises `Denied` unless the asker holds one of the roles; memory decides again by the policy."""
        if not any(self.may(role) for role in roles):
            raise Denied("role", f"the role {' or '.join(roles)} in project {self.project}")

    def memory(self) -> Memory:
        """Memory on the asker's behalf. Each use of it for a commit is a message of its own."""
        return self.desk.memory(self.project, self.principal.name)

    async def look(self, query: List | LogAfter) -> Found:
        """What a query finds, or the beginning of it when all of it would not fit into one reply of memory."""
        while True:
            try:
                (found,) = await self.memory().query(query)
            except Permanent as error:
                if error.code != "too_large" or query.limit == 1:
                    raise
                query = query.model_copy(update={"limit": max(1, query.limit // 4)})
            else:
                return found

    def sayer(self) -> Sayer:
        """The asker as what it says is recorded."""
        return Sayer(by=self.principal.name, by_kind=self.principal.kind, reads=self.may("read"))

    async def commit(self, decide: Callable[[Memory], Awaitable[tuple[Result, Commit]]]) -> Result:
        """Read, decide and commit; decided anew when what was read has changed. Raises what `decide` and memory do."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._once(decide)
            except Conflict:
                continue
        return await self._once(decide)

    async def _once(self, decide: Callable[[Memory], Awaitable[tuple[Result, Commit]]]) -> Result:
        memory = self.memory()
        result, commit = await decide(memory)
        if commit.writes or commit.messages:
            await memory.step(commit)
        return result


async def _asked(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
    project: Annotated[ProjectName | None, Query(description="The project; `default` when none is named.")] = None,
) -> Asked:
    desk: Desk = request.app.state.desk
    principal = await desk.askers.of(credentials.credentials if credentials else None)
    return Asked(desk, principal, project or subjects.DEFAULT_PROJECT, project is not None)


Asking = Annotated[Asked, Depends(_asked)]
"""The request as an endpoint's parameter."""
