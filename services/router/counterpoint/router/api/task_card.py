"""The card of a task over HTTP, as sections of lines that each reader renders itself."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from counterpoint.card.content import card
from counterpoint.proto.messages import Shape
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context
from counterpoint.router.api.tasks import read_task
from counterpoint.router.paging import TaskId

router = APIRouter(prefix="/v1", tags=["tasks"])


class ShownSection(Shape):
    """A label and its lines. A line that is a list holds the cells of a row."""

    label: str
    lines: tuple[str | tuple[str, ...], ...]
    style: Literal["text", "markdown", "code"]


class ShownCard(Shape):
    """The card of a task: what failed, what is known, what to do next. The command line shows the same."""

    title: str
    subtitles: tuple[str, ...]
    sections: tuple[ShownSection, ...]


@router.get("/tasks/{task_id}/card", responses={200: {"model": ShownCard}}, response_model=None)
async def task_card(
    context: Context,
    task_id: TaskId,
    verbose: Annotated[bool, Query(description="With the numbers, the searches and all rows.")] = False,
) -> Response:
    """Return the card of a task."""
    shown = card(await read_task(context, task_id), verbose=verbose)
    sections = tuple(ShownSection(label=each.label, lines=each.lines, style=each.style) for each in shown.sections)
    return reply(ShownCard(title=shown.title, subtitles=shown.subtitles, sections=sections))
