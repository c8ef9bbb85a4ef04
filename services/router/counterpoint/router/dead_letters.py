"""Dead letters over HTTP: what could not be handled, and the wish that it be tried again."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.memory import Commit, Item, List, Write
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.recall import Memory
from counterpoint.router.bodies import Page, page, reply
from counterpoint.router.desk import Asking
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1/dead-letters", tags=["operate"])

STORE = "dead_letters"
DEAD, RETRY = "dead", "retry"

LetterId = Annotated[Id, Path(description="The dead letter's id.")]


class Letter(Shape):
    """A message that could not be handled, redacted, and why. `state` is `dead`, or `retry` once it was asked for."""

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


@router.get("", responses={200: {"model": Page[Letter]}}, response_model=None)
async def dead_letters(asked: Asking, state: str | None = None, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Dead letters, newest first."""
    asked.needs("operate")
    where = {"state": state} if state else {}
    found = await asked.look(List(store=STORE, where=where, limit=limit, cursor=int(cursor) if cursor else None))
    letters = (_letter(item).model_dump(mode="json", exclude_none=True) for item in found.items)
    return page(letters, found.next_cursor)


@router.get("/{letter_id}", responses={200: {"model": Letter}}, response_model=None)
async def dead_letter(asked: Asking, letter_id: LetterId) -> Response:
    """One dead letter."""
    asked.needs("operate")
    return reply(_letter(await _item(asked.memory(), letter_id)))


@router.post("/{letter_id}/retry", status_code=202, responses={202: {"model": Letter}}, response_model=None)
async def retry(asked: Asking, letter_id: LetterId) -> Response:
    """Have the message delivered once more, under an id of its own. Only what is dead can be retried."""
    asked.needs("operate")

    async def wished(memory: Memory) -> tuple[Letter, Commit]:
        item = await _item(memory, letter_id)
        if item.body["state"] != DEAD:
            raise Permanent("conflict", (Problem(field="state", problem=f"is {item.body['state']}, not {DEAD}"),))
        more: dict[str, Any] = {
            "state": RETRY,
            "retried_by": asked.principal.name,
            "retried_at": memory.now.isoformat(),
        }
        write = Write(store=STORE, id=letter_id, body={**item.body, **more}, expect=item.version)
        return _letter(item.model_copy(update={"body": write.body})), Commit(writes=(write,))

    return reply(await asked.commit(wished), 202)


def _letter(item: Item) -> Letter:
    return Letter.model_validate({**item.body, "dead_letter_id": item.id, "at": item.at})


async def _item(memory: Memory, letter_id: str) -> Item:
    item = await memory.get(STORE, letter_id)
    if item is None:
        raise Permanent("not_found", (Problem(field="id", problem="is no dead letter of this project"),))
    return item
