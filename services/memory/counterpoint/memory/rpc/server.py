"""The request server: every query, commit, command and ingest of every service, decoded, executed and answered."""

import time

from prometheus_client import Histogram
from pydantic import ValidationError

from counterpoint.memory.operations.large_acts import AwaitsApproval
from counterpoint.memory.rpc import legacy
from counterpoint.memory.rpc.commands import CommandHandler
from counterpoint.memory.rpc.commits import CommitHandler
from counterpoint.memory.rpc.ingests import IngestHandler
from counterpoint.memory.rpc.queries import QueryHandler
from counterpoint.memory.rpc.refusals import Refusals, mapped
from counterpoint.proto.commands import CommandReply, CommandRequest
from counterpoint.proto.errors import CounterpointError
from counterpoint.proto.ingest import IngestReply, IngestRequest, PutPart, PutReply
from counterpoint.proto.memory import CommitReply, CommitRequest, QueryReply, QueryRequest

COMMITS = Histogram("counterpoint_commit_duration_seconds", "Time from request to reply", ["service"])


class RequestServer:
    """Answers requests as bytes. The caller's name comes from the subject, never from the body."""

    def __init__(
        self,
        queries: QueryHandler,
        commits: CommitHandler,
        commands: CommandHandler,
        ingests: IngestHandler,
        refusals: Refusals,
    ) -> None:
        self._queries = queries
        self._commits = commits
        self._commands = commands
        self._ingests = ingests
        self._refusals = refusals

    async def query(self, caller: str, raw: bytes) -> bytes:
        """Answer a `QueryRequest` with a `QueryReply`."""
        try:
            request = QueryRequest.model_validate_json(raw)
        except ValidationError as error:
            return QueryReply(refusal=await self._refusals.unread(caller, "query", error)).model_dump_json().encode()
        try:
            return await mapped(self._query(caller, request))
        except CounterpointError as error:
            refused = await self._refusals.of(caller, request.origin, "query", error)
            return QueryReply(refusal=refused).model_dump_json().encode()

    async def commit(self, caller: str, raw: bytes) -> bytes:
        """Answer a `CommitRequest` with a `CommitReply`."""
        began = time.perf_counter()
        try:
            request = CommitRequest.model_validate_json(raw)
        except ValidationError as error:
            refused = await self._refusals.unread(caller, "commit", error)
            return CommitReply(status="refused", refusal=refused).model_dump_json().encode()
        try:
            reply = await mapped(self._commit(caller, request))
        except CounterpointError as error:
            refused = await self._refusals.of(caller, request.origin, f"commit {request.commit.step}", error)
            reply = CommitReply(status="refused", refusal=refused)
        COMMITS.labels(caller).observe(time.perf_counter() - began)
        return reply.model_dump_json(exclude_none=True).encode()

    async def command(self, caller: str, raw: bytes) -> bytes:
        """Answer a `CommandRequest` with a `CommandReply`."""
        try:
            request = CommandRequest.model_validate_json(raw)
        except ValidationError as error:
            refused = await self._refusals.unread(caller, "command", error)
            return CommandReply(refusal=refused).model_dump_json(exclude_none=True).encode()
        try:
            reply = await mapped(self._commands.execute(caller, request))
        except CounterpointError as error:
            refused = await self._refusals.of(caller, request.origin, f"command {request.command.op}", error)
            reply = CommandReply(refusal=refused)
        return reply.model_dump_json(exclude_none=True).encode()

    async def _query(self, caller: str, request: QueryRequest) -> bytes:
        command = legacy.command_in_query(request)
        if command is None:
            return await self._queries.execute(caller, request)
        reply = await self._commands.execute(caller, CommandRequest(origin=request.origin, command=command))
        return legacy.as_query_reply(command, reply).model_dump_json(exclude_none=True).encode()

    async def _commit(self, caller: str, request: CommitRequest) -> CommitReply:
        command = legacy.command_in_commit(request.commit)
        if command is None:
            return await self._commits.execute(caller, request)
        reply = await self._commands.execute(caller, CommandRequest(origin=request.origin, command=command))
        if reply.approval is not None:
            raise AwaitsApproval(reply.approval)
        return reply.commit or CommitReply(status="done")

    async def ingest(self, caller: str, raw: bytes) -> bytes:
        """Answer an `IngestRequest` with an `IngestReply`."""
        try:
            request = IngestRequest.model_validate_json(raw)
        except ValidationError as error:
            return IngestReply(refusal=await self._refusals.unread(caller, "ingest", error)).model_dump_json().encode()
        try:
            reply = await mapped(self._ingests.execute(caller, request))
        except CounterpointError as error:
            reply = IngestReply(refusal=await self._refusals.of(caller, request.origin, "ingest", error))
        return reply.model_dump_json(exclude_none=True).encode()

    async def put(self, caller: str, raw: bytes) -> bytes:
        """Answer a `PutPart` with a `PutReply`."""
        try:
            request = PutPart.model_validate_json(raw)
        except ValidationError as error:
            return PutReply(refusal=await self._refusals.unread(caller, "put", error)).model_dump_json().encode()
        try:
            reply = await mapped(self._ingests.put(caller, request))
        except CounterpointError as error:
            reply = PutReply(refusal=await self._refusals.of(caller, request.origin, "put", error))
        return reply.model_dump_json(exclude_none=True).encode()
