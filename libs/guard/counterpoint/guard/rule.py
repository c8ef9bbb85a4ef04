"""A detection rule: the pattern of one service's keys, and its exceptions, in the format of gitleaks."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from counterpoint.guard.automata import alternation, compiled, literal
from counterpoint.guard.entropy import entropy
from counterpoint.guard.kinds import Span
from counterpoint.guard.known_examples import is_known_example
from counterpoint.guard.randomness import is_masked


@dataclass(frozen=True)
class Allowlist:
    """Exceptions of a rule: by a pattern in the secret, its match or its line, or by a word."""

    target: str
    patterns: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()

    @cached_property
    def _any(self) -> Any:
        return alternation(self.patterns) if self.patterns else None

    @cached_property
    def _words(self) -> Any:
        return alternation(tuple(literal(word) for word in self.words)) if self.words else None

    def covers(self, secret: bytes, match: bytes, line: bytes) -> bool:
        """Whether this allowlist excludes the finding."""
        looked_at = {"secret": secret, "match": match, "line": line}[self.target]
        if self._any is not None and self._any.search(looked_at) is not None:
            return True
        return self._words is not None and self._words.search(secret.lower()) is not None


@dataclass(frozen=True)
class Rule:
    """One rule, run on texts with one of the lowercase `keywords`, or on all without any; `group` has the secret.

    `entropy` is the minimum in bits per character.
    """

    kind: str
    keywords: tuple[bytes, ...]
    pattern: bytes
    entropy: float
    group: int
    allowed: tuple[Allowlist, ...] = ()

    @cached_property
    def _regex(self) -> Any:
        return compiled(self.pattern)

    def find(self, text: bytes) -> Iterator[Span]:
        """Yield the spans of the secrets in `text`."""
        for match in self._regex.finditer(text):
            start, end = self._secret(match)
            secret = text[start:end]
            if self.entropy and entropy(secret) <= self.entropy:
                continue
            value = secret.decode("latin-1")
            if is_masked(value) or is_known_example(value):
                continue
            line = text[text.rfind(b"\n", 0, match.start()) + 1 : _line_end(text, match.end())]
            if start < end and not any(allowed.covers(secret, match.group(), line) for allowed in self.allowed):
                yield start, end

    @cached_property
    def _groups(self) -> tuple[int, ...]:
        return (self.group,) if self.group else tuple(range(1, self._regex.groups + 1))

    def _secret(self, match: Any) -> Span:
        for group in self._groups:
            start, end = match.span(group)
            if start < end:
                return start, end
        start, end = match.span()
        return start, end


def _line_end(text: bytes, at: int) -> int:
    end = text.find(b"\n", at)
    return len(text) if end < 0 else end
