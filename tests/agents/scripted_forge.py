"""A forge for tests: a real HTTP server that speaks the dialects of GitHub, GitLab, Gitea and Forgejo.

Every change ticks its clock, which is not that of the house, by a second. It serves small pages. People act on it by
methods; `before` can fail a call, or let people act before it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from agents.forge_dialects import gitea, github, gitlab
from agents.forge_repository import ForgeReply, ForgeRepository, ForgeRequest

DIALECTS = {"github": github, "gitea": gitea, "gitlab": gitlab}


@dataclass
class ScriptedForge(ForgeRepository):
    """A forge with one repository. `locked` refuses the token."""

    token: str = "forge-token-hush"
    locked: bool = False
    asked: list[ForgeRequest] = field(default_factory=list)
    before: Callable[[ForgeRequest], ForgeReply | None] = lambda asked: None
    hang: Callable[[ForgeRequest], bool] = lambda asked: False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    hangs: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def writes(self) -> list[ForgeRequest]:
        return [asked for asked in self.asked if asked.writes]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = (line.partition(":") for line in head[1:] if line)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            content = await reader.readexactly(int(headers.get("content-length", 0)))
            method, target = head[0].split()[:2]
            parts = urlsplit(target)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            asked = ForgeRequest(method, parts.path, query, headers, json.loads(content) if content else None)
            self.asked.append(asked)
            hangs = self.hang(asked)
            status, body, *more = (0, None) if hangs else self.before(asked) or self.answer(asked)
            async with self.changed:
                self.changed.notify_all()
            if hangs:
                self.hangs.set()
                await self.released.wait()
                return
            sent = b"" if body is None else json.dumps(body).encode()
            lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(sent)}", "Connection: close"]
            lines += [f"{name}: {value}" for given in more for name, value in given.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + sent)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(self, asked: ForgeRequest) -> ForgeReply:
        """Answer a request by the rules of the dialect."""
        dialect = DIALECTS[self.kind]
        given = asked.headers.get("authorization" if self.kind != "gitlab" else "private-token", "")
        expected = {"github": f"Bearer {self.token}", "gitea": f"token {self.token}", "gitlab": self.token}[self.kind]
        if given != expected:
            return 401, {"message": "bad credentials"}
        if self.locked:
            return (404 if self.kind != "gitlab" else 403), {"message": "not found"}
        root = {"github": "/api/v3/repos/", "gitea": "/api/v1/repos/", "gitlab": "/api/v4/projects/"}[self.kind]
        name = self.repo if self.kind != "gitlab" else self.repo.replace("/", "%2F")
        present = (self.renamed or self.repo) if self.kind != "gitlab" else name
        if self.renamed and asked.path.startswith(root + self.repo):
            moved = asked.path.replace(self.repo, self.renamed, 1)
            return (301 if asked.method == "GET" else 307), None, {"Location": self.url + moved}
        if not asked.path.startswith(root + present):
            return 404, {"message": "no such repository"}
        rest = asked.path.removeprefix(root + present)
        if not rest:
            return 200, {"full_name": self.renamed or self.repo, "path_with_namespace": self.repo}
        return dialect(self, asked, rest.strip("/").split("/"))


@asynccontextmanager
async def scripted_forge(kind: str) -> AsyncIterator[ScriptedForge]:
    """A forge, until the end of the block."""
    forge = ScriptedForge(kind)
    server = await asyncio.start_server(forge.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    forge.url = f"http://{host}:{port}"
    try:
        yield forge
    finally:
        forge.released.set()
        server.close()
