"""Dead letters over HTTP: list, show, retry."""

from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import JSONResponse

from counterpoint.client import Memory
from counterpoint.proto import subjects
from counterpoint.proto.commands import RetryDeadLetter
from counterpoint.proto.errors import Conflict, ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Item, List
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/dead-letters", tags=["operate"])

STORE = "dead_letters"
_DEAD = "dead"

LetterId = Annotated[Id, Path(description="The dead letter's id.")]


class DeadLetterView(Shape):
    """A message that could not be processed, redacted, with the reason. `state` is `dead`, or `retry` after a retry."""

    dead_letter_id: Id
    at: Time
    state: str
    type: str | None = None
    code: str
    problems: tuple[Problem, ...] = ()
    consumer: str
    subject: str
    message_id: str
    task_id: str | None = None
    headers: dict[str, str] = {}
    body: str
    retried_by: str | None = None
    retried_at: Time | None = None


class RefusedRetry(Shape):
    """A dead letter that could not be retried, and the reason."""

    dead_letter_id: Id
    code: str
    problems: tuple[Problem, ...] = ()


class RetriedLetters(Shape):
    """The result of a retry of several dead letters. `next_cursor` selects further ones; null when none are left."""

    retried: tuple[Id, ...]
    refused: tuple[RefusedRetry, ...] = ()
    next_cursor: str | None


@router.get("", responses={200: {"model": ListPage[DeadLetterView]}}, response_model=None)
async def dead_letters(context: Context, cursor: Cursor, state: str | None = None, limit: Limit = 50) -> Response:
    """List dead letters, newest first."""
    context.require("operate")
    where = {"state": state} if state else {}
    result = await context.fetch(List(store=STORE, where=where, limit=limit, cursor=cursor))
    letters = (_letter(item).model_dump(mode="json", exclude_none=True) for item in result.items)
    return page(letters, result.next_cursor)


@router.get("/{letter_id}", responses={200: {"model": DeadLetterView}}, response_model=None)
async def dead_letter(context: Context, letter_id: LetterId) -> Response:
    """Return a dead letter."""
    context.require("operate")
    return reply(_letter(await _item(context.memory(), letter_id)))


@router.post("/{letter_id}/retry", status_code=202, responses={202: {"model": DeadLetterView}}, response_model=None)
async def retry(context: Context, letter_id: LetterId) -> Response:
    """Deliver the message again, under a new id. Only a letter in state `dead` can be retried."""
    context.require("operate")
    memory = context.memory()
    item = await _item(memory, letter_id)
    await memory.command(RetryDeadLetter(id=letter_id, version=item.version))
    return reply(_letter(await _item(memory, letter_id)), 202)


@router.post(
    "/{letter_id}/retry-alike", status_code=202, responses={202: {"model": RetriedLetters}}, response_model=None
)
async def retry_alike(context: Context, letter_id: LetterId, cursor: Cursor, limit: Limit = 50) -> Response:
    """Deliver this message and others like it again: dead letters of the same consumer, message type and error code.

    One request retries at most `limit`, newest first. `next_cursor` of its reply goes on with those that are left.
    """
    context.require("operate")
    first = _letter(await _item(context.memory(), letter_id))
    where = {"state": _DEAD, "consumer": first.consumer, "code": first.code}
    result = await context.fetch(List(store=STORE, where=where, limit=limit, cursor=cursor))
    retried, refused = list[str](), list[RefusedRetry]()
    for item in result.items:
        if _letter(item).type != first.type:
            continue
        problem = await _retried(context.memory(), item)
        if problem is None:
            retried.append(item.id)
        else:
            refused.append(problem)
    following = None if result.next_cursor is None else str(result.next_cursor)
    done = RetriedLetters(retried=tuple(retried), refused=tuple(refused), next_cursor=following)
    return JSONResponse(done.model_dump(mode="json"), 202)


async def _retried(memory: Memory, item: Item) -> RefusedRetry | None:
    """Retry one of several dead letters; return the reason if it cannot be retried. Raises `Transient`."""
    try:
        await memory.command(RetryDeadLetter(id=item.id, version=item.version))
    except Permanent as error:
        return RefusedRetry(dead_letter_id=item.id, code=error.code, problems=error.problems)
    except Conflict:
        return RefusedRetry(dead_letter_id=item.id, code=ErrorCode.CONFLICT)
    return None


def _letter(item: Item) -> DeadLetterView:
    headers = {name.lower(): value for name, value in item.body.get("headers", {}).items()}
    message_type = subjects.bare_type(item.body["subject"]) or headers.get("ce-type")
    return DeadLetterView.model_validate({**item.body, "type": message_type, "dead_letter_id": item.id, "at": item.at})


async def _item(memory: Memory, letter_id: str) -> Item:
    item = await memory.get(STORE, letter_id)
    if item is None:
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="id", problem="is not a dead letter of this project"),))
    return item
