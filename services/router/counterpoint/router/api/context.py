"""Request context: the caller, its project, and memory on its behalf."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from counterpoint.client import Memory, retry_on_conflict
from counterpoint.proto import subjects
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Commit, List, LogAfter, QueryResult
from counterpoint.proto.messages import ProjectName
from counterpoint.proto.principals import Principal, Role
from counterpoint.router.authentication import Authenticator, MemoryFor, token_id
from counterpoint.router.console.sign_in_codes import SignInCodes
from counterpoint.router.cookies import cookie_token
from counterpoint.router.hub import Hub
from counterpoint.router.intake.interventions import Reporter
from counterpoint.router.intake.running_tasks import RunningTasks
from counterpoint.router.live_log import LiveLogs, LogSubscriber
from counterpoint.router.open_streams import OpenStreams
from counterpoint.router.read_rights import ReadRights
from counterpoint.router.settings import RouterSettings
from counterpoint.router.webhooks.issue_events import IssueEvent

Result = TypeVar("Result")
_ATTEMPTS = 5
_BEARER = HTTPBearer(auto_error=False, description="The token of a principal.")


class TaskIssues(Protocol):
    """The part of issue synchronization that webhooks need."""

    async def touch(self, memory: Memory, event: IssueEvent) -> tuple[str | None, Commit]:
        """Return the task of the issue of an event, None without one, and the commit that plans its comparison."""

    async def tasks_of(self, memory: Memory, repository_url: str, numbers: Sequence[int]) -> tuple[str, ...]:
        """Return the tasks of the synchronized issues of a repository with these numbers."""


@dataclass(frozen=True)
class RouterResources:
    """Objects that all requests share. `issues` needs a tracker; `has_receivers` is about notifications."""

    memory: MemoryFor
    authenticator: Authenticator
    hub: Hub
    running_tasks: RunningTasks
    settings: RouterSettings
    sign_in_codes: SignInCodes = field(default_factory=SignInCodes)
    open_streams: OpenStreams = field(default_factory=OpenStreams)
    has_receivers: bool = False
    issues: TaskIssues | None = None

    @cached_property
    def live_decisions(self) -> LiveLogs[LogSubscriber]:
        """The ends of the projects' logs of decisions, for their streams."""
        return LiveLogs(self.hub, self.settings.poll_s)

    @cached_property
    def read_rights(self) -> ReadRights:
        """The rights of principals with open streams."""
        return ReadRights(self.authenticator, self.settings.principal_cache_s)


@dataclass(frozen=True)
class RequestContext:
    """One request: the caller and the project. `project_in_url` is true when the URL names the project.

    `token_id` is that of the caller's token; None for one that a source of webhooks names.
    """

    resources: RouterResources
    principal: Principal
    project: str
    project_in_url: bool
    token_id: str | None = None

    def in_project_of(self, body: Any) -> "RequestContext":
        """Return the context in the project that a JSON body names, if any.

        Raises `Permanent` `invalid` for an invalid name, or one that differs from the project in the URL.
        """
        project = body.get("project") if isinstance(body, dict) else None
        if project is None or project == self.project:
            return self
        if not isinstance(project, str) or not subjects.PROJECT_PATTERN.fullmatch(project):
            raise Permanent(ErrorCode.INVALID, (Problem(field="project", problem="is not a valid project name"),))
        if self.project_in_url:
            problem = Problem(field="project", problem=f"differs from the project in the URL, {self.project}")
            raise Permanent(ErrorCode.INVALID, (problem,))
        return replace(self, project=project)

    def may(self, role: Role) -> bool:
        """Return whether the caller has a role in the project."""
        return self.principal.may(role, self.project)

    def require(self, *roles: Role) -> None:
        """Raise `Denied` unless the caller has one of the roles. Memory checks the policy again."""
        if not any(self.may(role) for role in roles):
            raise Denied(ErrorCode.ROLE, f"the role {' or '.join(roles)} in project {self.project}")

    async def check_token(self) -> None:
        """Raise `Denied` if the caller's token is no longer valid. Memory knows the name alone, which a later token may
        have."""
        if self.token_id is not None:
            await self.resources.authenticator.principal(self.token_id)

    def memory(self) -> Memory:
        """Return memory on the caller's behalf. A commit needs a new one."""
        return self.resources.memory(self.project, self.principal.name)

    async def fetch(self, query: List | LogAfter) -> QueryResult:
        """Run a query. A result that is too large for one reply is cut to a shorter page."""
        (found,) = await self.fetch_all(query)
        return found

    async def fetch_all(self, *queries: List | LogAfter) -> tuple[QueryResult, ...]:
        """Run queries on one snapshot. Results that are too large for one reply are cut to shorter pages."""
        while True:
            try:
                return tuple(await self.memory().query(*queries))
            except Permanent as error:
                if error.code != ErrorCode.TOO_LARGE or all(query.limit == 1 for query in queries):
                    raise
                queries = tuple(query.model_copy(update={"limit": max(1, query.limit // 4)}) for query in queries)

    def reporter(self) -> Reporter:
        """Return the caller as the author of a report."""
        return Reporter(
            by=self.principal.name,
            by_kind=self.principal.kind,
            may_read=self.may("read"),
            may_cancel=self.may("override"),
        )

    async def commit(self, decide: Callable[[Memory], Awaitable[tuple[Result, Commit]]]) -> Result:
        """Read, decide and commit; repeat on `Conflict`. Raises the errors of `decide` and memory."""
        return await retry_on_conflict(partial(self._commit_once, decide), _ATTEMPTS)

    async def _commit_once(self, decide: Callable[[Memory], Awaitable[tuple[Result, Commit]]]) -> Result:
        memory = self.memory()
        result, commit = await decide(memory)
        if commit.writes or commit.messages:
            await memory.step(commit)
        return result


async def _context(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
    project: Annotated[ProjectName | None, Query(description="The project; `default` without one.")] = None,
) -> RequestContext:
    resources: RouterResources = request.app.state.resources
    token = credentials.credentials if credentials else cookie_token(request)
    principal = await resources.authenticator.authenticate(token)
    chosen = project or subjects.DEFAULT_PROJECT
    return RequestContext(resources, principal, chosen, project is not None, token_id(token or ""))


Context = Annotated[RequestContext, Depends(_context)]
"""Parameter of an endpoint that needs a caller."""
