"""Calls to providers: text generation, embeddings and web search, and their outcomes."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from counterpoint.manager.gateway.ledger import CallUsage

_PER_MESSAGE_TOKENS = 16
_PER_CALL_TOKENS = 64
"""Upper bounds of the tokens that a provider's template adds to a message and to a call."""


@dataclass(frozen=True, slots=True)
class GenerateCall:
    """A completion of `messages`, pairs of role and content, with at most `max_tokens`."""

    model: str
    messages: tuple[tuple[str, str], ...]
    max_tokens: int
    temperature: float = 0.0
    as_json: bool = False

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
    """Outcome of a call: its answer (`text` and `finish`, `vectors`, or `results`) and usage."""

    answer: dict[str, Any]
    model: str
    usage: CallUsage
    replayed: bool = False


def call_digest(call: ProviderCall) -> str:
    """Return the hash of a call; equal calls have equal hashes."""
    fields = {name: getattr(call, name) for name in call.__dataclass_fields__}
    return hashlib.sha256(json.dumps([call.kind, fields], sort_keys=True).encode()).hexdigest()


def max_call_tokens(call: ProviderCall) -> tuple[int, int]:
    """Return upper bounds of input and output tokens: a text has at most as many tokens as bytes."""
    match call:
        case GenerateCall():
            prompt_tokens = sum(_bytes(content) + _PER_MESSAGE_TOKENS for _, content in call.messages)
            return prompt_tokens + _PER_CALL_TOKENS, call.max_tokens
        case EmbedCall():
            return sum(_bytes(text) + _PER_MESSAGE_TOKENS for text in call.texts), 0
        case WebSearchCall():
            return 0, 0


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))
