"""Patterns over bytes on google-re2, whose time grows with the length of a text and never with its square."""

from collections.abc import Iterator
from typing import Any

import re2

from counterpoint.guard.kinds import Span


def compiled(pattern: bytes) -> Any:
    """A pattern over bytes, each a sign of its own."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    return re2.compile(pattern, options)


def either(patterns: tuple[bytes, ...]) -> Any:
    """One pattern for all of them."""
    return compiled(b"|".join(b"(?:" + pattern + b")" for pattern in patterns))


class Words:
    """Finds which of many words are in a text, in one pass over it and whatever the case of ASCII letters."""

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
        """The words that are in `text`."""
        return frozenset(self._words[index] for index in self._set.Match(text) or ())


def literal(word: bytes) -> bytes:
    """A pattern that matches `word` alone."""
    escaped: bytes = re2.escape(word)
    return escaped


def spans(regex: Any, text: bytes) -> Iterator[Span]:
    """The spans of group 1; the next search begins where it ends, so that one sign may part two."""
    match = regex.search(text)
    while match is not None:
        span = match.span(1)
        yield span
        match = regex.search(text, span[1])
