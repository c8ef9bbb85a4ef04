"""Parameters and pages of lists."""

from collections.abc import Iterable
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from counterpoint.proto.messages import Id, Shape

S = TypeVar("S", bound=BaseModel)

TaskId = Annotated[Id, Path(description="The task's id.")]
Limit = Annotated[int, Query(ge=1, le=200, description="Maximum number of items.")]


class ListPage(Shape, Generic[S]):
    """A page of a list. `next_cursor` selects the next page; null at the end."""

    items: tuple[S, ...]
    next_cursor: str | None


def page(items: Iterable[dict[str, Any]], next_cursor: int | None) -> Response:
    """Return a page as a response."""
    return JSONResponse({"items": list(items), "next_cursor": None if next_cursor is None else str(next_cursor)})


def _cursor(
    cursor: Annotated[str | None, Query(pattern=r"^\d{1,18}$", description="`next_cursor` of the page before.")] = None,
) -> int | None:
    return int(cursor) if cursor else None


Cursor = Annotated[int | None, Depends(_cursor)]
"""Position in a list after which a page begins, None at the start."""
