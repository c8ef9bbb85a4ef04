"""Replies of a model, read as turns. Pure."""

import json
from typing import Any

from pydantic import ValidationError

from counterpoint.developer.agent.investigation import MAX_STEPS, ModelProposal, ModelTurn
from counterpoint.developer.agent.tools import TOOLS
from counterpoint.developer.evidence.attempts import truncate
from counterpoint.developer.language.storable import object_in, storable
from counterpoint.proto.messages import Shape

_TEXT_CHARS, _PART_CHARS, _ARGUMENT_CHARS = 1_000, 4_000, 1_000


class _Reply(Shape):
    hypothesis: str = ""
    would_tell: str = ""
    tool: str | None = None
    arguments: dict[str, str | int | float | bool | None] = {}
    proposal: ModelProposal | None = None


def turn_of(text: str, finish: str) -> ModelTurn:
    """Return a reply as a turn; unknown fields of it are ignored."""
    found = object_in(text)
    if finish == "length":
        return ModelTurn(problem="the reply was cut off at the limit of its length")
    if not found:
        return ModelTurn(problem="the reply is not a JSON object" if text.strip() else "the reply is empty")
    try:
        reply = _Reply.model_validate(_storable(json.loads(found, parse_constant=_refuse_constant)))
    except (ValidationError, ValueError, RecursionError):
        return ModelTurn(problem="the reply is not a JSON object of the form that was asked for")
    said: dict[str, Any] = {
        "hypothesis": truncate(reply.hypothesis, _TEXT_CHARS),
        "would_tell": truncate(reply.would_tell, _TEXT_CHARS),
    }
    if reply.proposal is not None:
        return ModelTurn(**said, proposal=_bounded(reply.proposal))
    if reply.tool is None:
        return ModelTurn(**said, problem="the reply has neither a tool nor a proposal")
    arguments = {name: f"{value}"[:_ARGUMENT_CHARS] for name, value in reply.arguments.items() if value is not None}
    turn = ModelTurn(**said, tool=reply.tool[:_ARGUMENT_CHARS], arguments=arguments)
    problem = _problem(turn)
    return turn.model_copy(update={"problem": problem}) if problem else turn


def _bounded(proposed: ModelProposal) -> ModelProposal:
    """Return a proposal within the limits of its texts and steps."""
    texts = proposed.model_dump(exclude={"steps"})
    steps = tuple(
        each.model_copy(update={"does": truncate(each.does, _PART_CHARS)}) for each in proposed.steps[:MAX_STEPS]
    )
    return ModelProposal(**{name: truncate(text, _PART_CHARS) for name, text in texts.items()}, steps=steps)


def _problem(turn: ModelTurn) -> str | None:
    tool = TOOLS.get(turn.tool or "")
    if tool is None:
        return f"there is no such tool; the tools are {', '.join(TOOLS)}"
    unknown = turn.arguments.keys() - tool.arguments.keys()
    missing = [name for name in tool.required if not turn.arguments.get(name, "").strip()]
    if unknown or missing:
        named, must = (", ".join(names) or "none" for names in (tool.arguments, tool.required))
        return f"the arguments of {turn.tool} are {named}; those that must be given are {must}"
    return None


def _storable(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case list():
            return [_storable(each) for each in value]
        case dict():
            return {storable(name): _storable(each) for name, each in value.items()}
        case _:
            return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
