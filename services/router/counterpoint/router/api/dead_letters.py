"""Dead letters over HTTP: list, show, retry."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from counterpoint.client import Memory
from counterpoint.proto.commands import RetryDeadLetter
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Item, List
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/dead-letters", tags=["operate"])

STORE = "dead_letters"

LetterId = Annotated[Id, Path(description="The dead letter's id.")]


class DeadLetterView(Shape):
    """A message that could not be processed, redacted, with the reason. `state` is `dead`, or `retry` after a retry."""

    dead_letter_id: Id
    at: Time
    state: str
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


def _letter(item: Item) -> DeadLetterView:
    return DeadLetterView.model_validate({**item.body, "dead_letter_id": item.id, "at": item.at})


async def _item(memory: Memory, letter_id: str) -> Item:
    item = await memory.get(STORE, letter_id)
    if item is None:
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="id", problem="is not a dead letter of this project"),))
    return item
