"""Patterns over bytes on google-re2, which matches in time linear in the text's length."""

from collections.abc import Iterator
from typing import Any

import re2

from counterpoint.guard.kinds import Span


def compiled(pattern: bytes) -> Any:
    """Compile a pattern in which each byte is a character."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    return re2.compile(pattern, options)


def alternation(patterns: tuple[bytes, ...]) -> Any:
    """Compile the alternation of some patterns."""
    return compiled(b"|".join(b"(?:" + pattern + b")" for pattern in patterns))


class Words:
    """A set of words searched for in one pass, ignoring ASCII case."""

    def __init__(self, words: tuple[bytes, ...]) -> None:
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.case_sensitive = False
        self._words = words
        self._set = re2.Set.SearchSet(options)
        for word in words:
            self._set.Add(literal(word))
        self._set.Compile()

    def within(self, text: bytes) -> frozenset[bytes]:
        """Return the words that occur in `text`."""
        return frozenset(self._words[index] for index in self._set.Match(text) or ())


def literal(word: bytes) -> bytes:
    """Return a pattern that matches `word` literally."""
    escaped: bytes = re2.escape(word)
    return escaped


def spans(regex: Any, text: bytes) -> Iterator[Span]:
    """Yield the spans of group 1; the next search starts at its end, so that matches may share a separator."""
    match = regex.search(text)
    while match is not None:
        span = match.span(1)
        yield span
        match = regex.search(text, span[1])
