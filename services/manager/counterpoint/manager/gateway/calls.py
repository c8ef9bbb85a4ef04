"""Calls to providers: text generation, embeddings and web search, and their outcomes."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from counterpoint.manager.gateway.ledger import CallUsage

_PER_MESSAGE_TOKENS = 16
_PER_CALL_TOKENS = 64
"""Upper bounds of the tokens that a provider's template adds to a message and to a call."""
DeltaSink = Callable[[str, Mapping[str, Any]], None]
"""Receiver of a completion in parts: the model, and a `delta` as OpenAI's API defines it."""
_TOOLS_TOKENS = 1024
"""Upper bound of the tokens of the instructions that a provider adds to a call with tools or a schema."""
_ADDED = {"added": True}
"""Marks a field that is not hashed while it has its default value, so that stored hashes remain valid."""


@dataclass(frozen=True, slots=True)
class GenerateCall:
    """A completion of `messages` with at most `max_tokens`.

    A message is a pair of role and content, or a message of OpenAI's API that calls a tool or returns its result.
    `tools`, `tool_choice` and `json_schema` are passed to the provider as that API defines them.
    """

    model: str
    messages: tuple[tuple[str, str] | Mapping[str, Any], ...]
    max_tokens: int
    temperature: float = 0.0
    as_json: bool = False
    json_schema: Mapping[str, Any] | None = field(default=None, metadata=_ADDED)
    tools: tuple[Mapping[str, Any], ...] = field(default=(), metadata=_ADDED)
    tool_choice: str | Mapping[str, Any] | None = field(default=None, metadata=_ADDED)

    kind = "generate"


@dataclass(frozen=True, slots=True)
class EmbedCall:
    """The vectors of `texts`, with `dimensions` if the model supports it."""

    model: str
    texts: tuple[str, ...]
    dimensions: int | None = None

    kind = "embed"


@dataclass(frozen=True, slots=True)
class WebSearchCall:
    """A web search for the first `count` pages about `query`."""

    query: str
    count: int

    kind = "search"
    model = "searxng"


ProviderCall = GenerateCall | EmbedCall | WebSearchCall


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """Outcome of a call: its answer (`text`, `finish` and perhaps `tool_calls`; `vectors`; or `results`) and usage."""

    answer: dict[str, Any]
    model: str
    usage: CallUsage
    replayed: bool = False


def call_digest(call: ProviderCall) -> str:
    """Return the hash of a call; equal calls have equal hashes."""
    hashed = {
        each.name: value
        for each in fields(call)
        if (value := getattr(call, each.name)) != each.default or not each.metadata.get("added")
    }
    return hashlib.sha256(json.dumps([call.kind, hashed], sort_keys=True).encode()).hexdigest()


def max_call_tokens(call: ProviderCall) -> tuple[int, int]:
    """Return upper bounds of input and output tokens: a text has at most as many tokens as bytes."""
    match call:
        case GenerateCall():
            contents = [each[1] if isinstance(each, tuple) else json.dumps(each) for each in call.messages]
            prompt_tokens = sum(_bytes(content) + _PER_MESSAGE_TOKENS for content in contents)
            declared = [*call.tools, *([call.json_schema] if call.json_schema else ())]
            prompt_tokens += sum(_bytes(json.dumps(each)) + _PER_MESSAGE_TOKENS for each in declared)
            prompt_tokens += _TOOLS_TOKENS if declared else 0
            return prompt_tokens + _PER_CALL_TOKENS, call.max_tokens
        case EmbedCall():
            return sum(_bytes(text) + _PER_MESSAGE_TOKENS for text in call.texts), 0
        case WebSearchCall():
            return 0, 0


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))
