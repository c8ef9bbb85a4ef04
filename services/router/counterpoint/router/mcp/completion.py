"""Completion of ids in prompts and resources."""

from collections.abc import Sequence

from mcp_types import CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

from counterpoint.proto.memory import List
from counterpoint.router.mcp.caller import caller
from counterpoint.router.mcp.resources import STORES

_SCANNED = 200


async def complete(
    reference: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> list[str]:
    """Return the ids that begin with what was typed, those of the newest records first."""
    given = (context.arguments if context else None) or {}
    match argument.name:
        case "task_id":
            candidates = await _ids("tasks", given.get("project"))
        case "job":
            candidates = await _ids("jobs", given.get("project"))
        case "record_id" if (store := given.get("store")) in STORES:
            candidates = await _ids(str(store), given.get("project"))
        case "store":
            candidates = STORES
        case _:
            candidates = ()
    return [each for each in candidates if each.startswith(argument.value)]


async def _ids(store: str, project: str | None) -> Sequence[str]:
    request = caller(project)
    request.require("read")
    found = await request.fetch(List(store=store, limit=_SCANNED))
    return tuple(item.id for item in found.items)
