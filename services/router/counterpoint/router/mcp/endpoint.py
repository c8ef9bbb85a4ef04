"""The MCP endpoint: authentication of each HTTP request, and the server, which is loaded at the first one.

The server needs packages of about 60 MB, so the router does not import them before a principal calls.
"""

import asyncio
import importlib
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpoint.proto import subjects
from counterpoint.proto.errors import CounterpointError, Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.principals import Principal
from counterpoint.router.api.context import RequestContext, RouterResources
from counterpoint.router.authentication import token_id
from counterpoint.router.problems import MEDIA_TYPE, problem_of

log = structlog.get_logger()

PATH = "/mcp"
METADATA_PATHS = ("/.well-known/oauth-protected-resource", f"/.well-known/oauth-protected-resource{PATH}")
CONTEXT = "counterpoint.context"
"""Key of the request context in the ASGI scope."""
ALL_TOOLS = "counterpoint.all_tools"
"""Key in the ASGI scope: the URL asks for all tools."""
_SERVER = "counterpoint.router.mcp.server"


class McpEndpoint:
    """Middleware that serves `/mcp` and the OAuth metadata beside an application."""

    def __init__(self, app: ASGIApp, resources: RouterResources) -> None:
        self._app = app
        self._resources = resources
        self._server = LazyServer(resources)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of MCP, or forward another one."""
        path = scope.get("path")
        if scope["type"] != "http" or path not in (PATH, *METADATA_PATHS):
            await self._app(scope, receive, send)
        elif path == PATH:
            await self._mcp(scope, receive, send)
        else:
            await self._metadata(scope, receive, send)

    @property
    def is_running(self) -> bool:
        """Whether the server is loaded."""
        return self._server.is_running

    async def close(self) -> None:
        """End all sessions and streams."""
        await self._server.close()

    async def _mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            token = _bearer(Headers(scope=scope))
            principal = await self._resources.authenticator.authenticate(token)
            context, all_tools = _parameters(scope, self._resources, principal, token_id(token or ""))
            app = await self._server.started()
        except CounterpointError as error:
            await self._refusal(error)(scope, receive, send)
            return
        scope = {**scope, CONTEXT: context, ALL_TOOLS: all_tools}
        response = _Response(send)
        serving = asyncio.ensure_future(app(scope, receive, response.send))
        try:
            while not (await asyncio.wait({serving}, timeout=self._resources.settings.poll_s))[0]:
                if await self._is_revoked(token):
                    break
        finally:
            ended = not serving.done()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        if ended:
            await response.end()
        else:
            serving.result()

    async def _is_revoked(self, token: str | None) -> bool:
        """Return whether the token has no principal any more."""
        try:
            await self._resources.authenticator.authenticate(token)
        except Denied:
            log.info("mcp.ended", rule=ErrorCode.UNAUTHENTICATED)
            return True
        except Transient as error:
            log.info("mcp.waits", reason=str(error))
        return False

    def _refusal(self, error: CounterpointError) -> Response:
        problem, headers = problem_of(error)
        settings = self._resources.settings
        if problem.status == 401 and settings.mcp_authorization_servers:
            parts = urlsplit(settings.mcp_url)
            url = urlunsplit((parts.scheme, parts.netloc, f"{METADATA_PATHS[0]}{parts.path}", "", ""))
            headers = {"WWW-Authenticate": f'Bearer resource_metadata="{url}"'}
        return Response(problem.model_dump_json(exclude_none=True), problem.status, headers, MEDIA_TYPE)

    async def _metadata(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the protected resource metadata (RFC 9728), which needs a configured authorization server."""
        settings = self._resources.settings
        if not settings.mcp_authorization_servers:
            await self._refusal(
                Permanent(
                    ErrorCode.NOT_FOUND, (Problem(field="path", problem="no authorization server is configured"),)
                )
            )(scope, receive, send)
            return
        body = {
            "resource": settings.mcp_url,
            "authorization_servers": list(settings.mcp_authorization_servers),
            "bearer_methods_supported": ["header"],
            "resource_name": "Counterpoint",
        }
        await JSONResponse(body)(scope, receive, send)


class LazyServer:
    """The MCP server as an ASGI application, which starts when it is first needed."""

    def __init__(self, resources: RouterResources) -> None:
        self._resources = resources
        self._app: ASGIApp | None = None
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """Whether it was started and not closed."""
        return self._app is not None and not self._stopping.is_set()

    async def started(self) -> ASGIApp:
        """Return the application; start it if necessary. Raises `Transient` when the router stops."""
        if self._app is not None and not self._stopping.is_set():
            return self._app
        async with self._lock:
            if self._stopping.is_set():
                raise Transient("the router is stopping")
            if self._app is None:
                module = await asyncio.to_thread(importlib.import_module, _SERVER)
                app = module.application(self._resources)
                ready = asyncio.Event()
                running = asyncio.create_task(self._run(app, ready), name="mcp")
                waiting = asyncio.create_task(ready.wait())
                await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if running.done():
                    running.result()
                self._app, self._running = app, running
                log.info("mcp.started")
            return self._app

    async def close(self) -> None:
        """Stop the server, if it runs."""
        self._stopping.set()
        if self._running is not None:
            await self._running

    async def _run(self, app: Any, ready: asyncio.Event) -> None:
        # A lifespan is left by the task that entered it.
        async with app.lifespan(app):
            ready.set()
            await self._stopping.wait()


class _Response:
    """A response under way, which can be ended from outside."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._open = False

    async def send(self, message: Message) -> None:
        """Pass a part on."""
        self._open = message["type"] == "http.response.start" or bool(message.get("more_body"))
        await self._send(message)

    async def end(self) -> None:
        """End the body, if it has begun."""
        if self._open:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _bearer(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _parameters(
    scope: MutableMapping[str, Any], resources: RouterResources, principal: Principal, token_id: str
) -> tuple[RequestContext, bool]:
    """Return the request context and whether all tools are listed, from the URL's `project` and `tools`."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    project = query.get("project", [None])[-1]
    tools = query.get("tools", ["some"])[-1]
    if tools not in ("some", "all"):
        raise Permanent(ErrorCode.INVALID, (Problem(field="tools", problem="must be some or all"),))
    context = RequestContext(resources, principal, subjects.DEFAULT_PROJECT, project_in_url=False, token_id=token_id)
    context = context.in_project_of({"project": project})
    return replace(context, project_in_url=project is not None), tools == "all"
