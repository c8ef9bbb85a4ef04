"""Requests of the last release, which sent commands as queries and writes, translated into commands."""

from pydantic import ValidationError

from counterpoint.memory.access.refusals import problems_of
from counterpoint.memory.operations import erasure, quarantines
from counterpoint.proto.commands import (
    ChangeEmbeddingModel,
    Command,
    CommandReply,
    EraseContent,
    IssueGatewayToken,
    RebuildProjection,
    RetryDeadLetter,
    TakeBackMemory,
)
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.memory import (
    Commit,
    Erase,
    QueryPlan,
    QueryReply,
    QueryRequest,
    QueryResult,
    Rebuild,
    Reembed,
    TakeBack,
    Write,
)

_STORES = (quarantines.STORE, erasure.STORE, "dead_letters")


def command_in_commit(commit: Commit) -> Command | None:
    """Return the command in a commit, None for an ordinary commit. Raises `Denied` `store`, `Permanent`."""
    write = next((write for write in commit.writes if _commands(write)), None)
    if write is None:
        return None
    if len(commit.writes) > 1 or commit.messages or commit.dead_letter is not None:
        raise Denied(ErrorCode.STORE, "a commit that contains only the command")
    try:
        match write.store:
            case quarantines.STORE:
                return TakeBackMemory(id=write.id, wish=TakeBack.model_validate(write.body))
            case erasure.STORE:
                return EraseContent(id=write.id, wish=Erase.model_validate(write.body))
            case _:
                return RetryDeadLetter(id=write.id, version=write.expect)
    except ValidationError as error:
        raise Permanent(ErrorCode.INVALID, problems_of(error)) from error


def _commands(write: Write) -> bool:
    if write.store == "dead_letters":
        return write.body is not None and write.body.get("state") == "retry"
    return write.store in _STORES


def command_in_query(request: QueryRequest) -> Command | None:
    """Return the command in a query request, None for an ordinary request. Raises `Permanent`."""
    if request.gateway is not None:
        return IssueGatewayToken(**request.gateway.model_dump())
    for query in request.queries:
        match query:
            case Reembed(act="begin" | "switch" | "rollback" | "drop"):
                _only(request)
                return ChangeEmbeddingModel(act=query.act, model=query.model, unindexed=query.unindexed)
            case Rebuild(start=True) if len(request.queries) == 1:
                return RebuildProjection(tier=query.tier)
            case _:
                continue
    return None


def _only(request: QueryRequest) -> None:
    if len(request.queries) > 1:
        raise Permanent(ErrorCode.INVALID, (Problem(field="queries", problem="must be the only query"),))


def as_query_reply(command: Command, reply: CommandReply) -> QueryReply:
    """Return the reply to a command as a query reply."""
    if reply.token is not None:
        return QueryReply(token=reply.token)
    tier = command.tier if isinstance(command, RebuildProjection) else "vector"
    plan = QueryPlan.REBUILD if isinstance(command, RebuildProjection) else QueryPlan.REEMBED
    return QueryReply(found=(QueryResult(tier=tier, plan=plan, took_us=0, report=reply.report),))
