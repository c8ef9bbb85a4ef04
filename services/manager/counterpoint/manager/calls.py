"""What may be asked for outside: text of a model, vectors of texts, pages of the web; and what came of it."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from counterpoint.manager.ledger import Taken

_PER_MESSAGE_TOKENS = 16
_PER_CALL_TOKENS = 64
"""What a provider's template may add to a message and to a call, generously."""


@dataclass(frozen=True, slots=True)
class Generate:
    """Have `model` go on from `messages`, pairs of role and content, with `max_tokens` at most."""

    model: str
    messages: tuple[tuple[str, str], ...]
    max_tokens: int
    temperature: float = 0.0
    as_json: bool = False

    kind = "generate"


@dataclass(frozen=True, slots=True)
class Embed:
    """The vectors of `texts` by `model`, of `dimensions` where it can choose."""

    model: str
    texts: tuple[str, ...]
    dimensions: int | None = None

    kind = "embed"


@dataclass(frozen=True, slots=True)
class Search:
    """The first `count` pages of the web about `query`."""

    query: str
    count: int

    kind = "search"
    model = "searxng"


Call = Generate | Embed | Search
Kind = Literal["generate", "embed", "search"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to: its answer (`text` and `finish`, `vectors`, or `results`), and what it took."""

    answer: dict[str, Any]
    model: str
    taken: Taken
    replayed: bool = False


def digest(call: Call) -> str:
    """The hash of all that is asked for: two calls with the same one are the same call."""
    fields = {name: getattr(call, name) for name in call.__dataclass_fields__}
    return hashlib.sha256(json.dumps([call.kind, fields], sort_keys=True).encode()).hexdigest()


def most_tokens(call: Call) -> tuple[int, int]:
    """Tokens in and out that a call can take at most: no tokenizer makes more tokens than there are bytes."""
    match call:
        case Generate():
            said = sum(_bytes(content) + _PER_MESSAGE_TOKENS for _, content in call.messages)
            return said + _PER_CALL_TOKENS, call.max_tokens
        case Embed():
            return sum(_bytes(text) + _PER_MESSAGE_TOKENS for text in call.texts), 0
        case Search():
            return 0, 0


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))
