"""Resources: tasks, their cards and lines, records of memory, and lineage."""

import json
from urllib.parse import unquote

from fastmcp import FastMCP

from counterpoint.card.content import card
from counterpoint.card.render import markdown
from counterpoint.graph.lineage import lineage_of
from counterpoint.graph.radius import Lineage
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.router.api.context import RequestContext
from counterpoint.router.api.search import hit_json
from counterpoint.router.api.task_line import read_line
from counterpoint.router.api.tasks import read_task
from counterpoint.router.api.waiting_tasks import waiting_tasks
from counterpoint.router.mcp.caller import caller
from counterpoint.router.mcp.lineage import job_named

JSON, MARKDOWN = "application/json", "text/markdown"
STORES = ("documents", "chunks", "attempts", "decisions", "entities")
_DEPTH = 5
WAITING = 20
"""Maximum number of tasks in `escalations://open`."""


async def task(task_id: str, project: str | None = None) -> str:
    """A task as JSON."""
    return (await read_task(caller(project), task_id)).model_dump_json(exclude_none=True)


async def task_card(task_id: str, project: str | None = None) -> str:
    """The card of a task as markdown: what failed, what is known, what to do next."""
    return markdown(card(await read_task(caller(project), task_id)))


async def line(task_id: str, project: str | None = None) -> str:
    """The line of a task as JSON: every action of every agent, and the decisions."""
    return json.dumps(await read_line(caller(project), task_id), ensure_ascii=False)


async def memory_record(store: str, record_id: str, project: str | None = None) -> str:
    """A record of memory as JSON: a document, chunk, attempt, decision or entity."""
    context = caller(project)
    context.require("read")
    item = await context.memory().get(store, unquote(record_id)) if store in STORES else None
    if item is None:
        problem = f"is not a record of project {context.project} in {', '.join(STORES)}"
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="uri", problem=problem),))
    return json.dumps(hit_json(item), ensure_ascii=False)


async def lineage(job: str, project: str | None = None) -> str:
    """The jobs and data sets around a job as JSON. The job is its name, or NAMESPACE/NAME percent-encoded."""
    return (await lineage_around(caller(project), job)).model_dump_json(exclude_none=True)


async def lineage_around(context: RequestContext, job: str) -> Lineage:
    """Return the lineage around a job, named as in a URI. Raises `Permanent` `not_found` or `ambiguous`."""
    context.require("read")
    memory = context.memory()
    return await lineage_of(memory, await job_named(memory, unquote(job)), depth=_DEPTH)


async def escalations() -> str:
    """The cards of the tasks that wait for a person or an agent, as markdown."""
    return await waiting_cards(caller(), WAITING)


async def waiting_cards(context: RequestContext, limit: int) -> str:
    """Return the cards of the tasks that wait, and a line that says so if there are more. Raises `Denied`."""
    tasks, more = await waiting_tasks(context, limit)
    cards = [markdown(card(each)) for each in tasks]
    if more:
        cards.append(f"More tasks wait: these are the {limit} that changed last. Call list_escalations for up to 100.")
    return "\n\n---\n\n".join(cards) or "Nothing waits."


def add_resources(server: FastMCP) -> None:
    """Add all resources to a server."""
    server.resource("escalations://open", mime_type=MARKDOWN)(escalations)
    for uri, read, mime_type in (
        ("task://{task_id}{?project}", task, JSON),
        ("card://{task_id}{?project}", task_card, MARKDOWN),
        ("line://{task_id}{?project}", line, JSON),
        ("memory://{store}/{record_id}{?project}", memory_record, JSON),
        ("lineage://{job}{?project}", lineage, JSON),
    ):
        server.resource(uri, mime_type=mime_type)(read)
