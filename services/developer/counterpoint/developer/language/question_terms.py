"""Parts of a question: its words by their worth, its exact forms, and the kind of thing that answers it."""

import math
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from counterpoint.developer.language.german import english, is_german, restarts, stem, stop_word, translated
from counterpoint.developer.language.kinds import FOCUS, OURS, PERMISSION, Kind, kind_of
from counterpoint.developer.language.words import content_words

_WORD = re.compile(r"[a-zäöüß]{2,}")
_DIGIT = re.compile(r"(?<![\w.,:/-])\d(?![\w.,:/-]|\. )")
_JOINED = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b|\b\w*[a-z][A-Z]\w*\b|\b\w*\d\w*\b|\w+(?:[._/:=]\w+)+")


@dataclass(frozen=True)
class QuestionTerms:
    """A question. `worth` has each of its words with how rare it is among what was found; `known` are other ways to
    say one of them; `missing` are those that nothing found says."""

    text: str
    worth: Mapping[str, float]
    known: Mapping[str, frozenset[str]]
    missing: frozenset[str] = frozenset()

    @cached_property
    def kind(self) -> Kind | None:
        """The kind of thing asked for, where it says so."""
        return kind_of(self.text)

    @cached_property
    def permission(self) -> bool:
        """Whether it is to be answered by yes or no."""
        return PERMISSION.search(self.text) is not None

    @cached_property
    def ours(self) -> bool:
        """Whether it is about what those have who ask."""
        return OURS.search(self.text) is not None

    def fits(self, text: str) -> bool:
        """Whether a text holds the kind of thing asked for."""
        return self.kind is not None and self.kind.answers.search(text) is not None

    @cached_property
    def focus(self) -> frozenset[str]:
        """The words that name what is asked for: those that follow "which", "what", "how many" and the like at once."""
        asked = FOCUS.search(self.text)
        if asked is None:
            return frozenset()
        named = words_of(asked[1])
        return frozenset(word for word, said in self.known.items() if word in named or said & named)

    def held(self, text: str) -> frozenset[str]:
        """The words of the question that a text holds, in whatever way it says them."""
        return self.among(words_of(text))

    def among(self, words: Set[str]) -> frozenset[str]:
        """The same of the words of a text."""
        return frozenset(word for word, said in self.known.items() if not said.isdisjoint(words))

    def share(self, held: Iterable[str]) -> float:
        """Share in [0, 1] of the worth of the question's words that these have."""
        total = sum(self.worth.values())
        return sum(self.worth[word] for word in held) / total if total else 0.0


def question_terms(question: str, found: Iterable[Set[str]], counted: bool = True) -> QuestionTerms:
    """A question as it is looked for among texts of these words (`words_of`), a rare word worth more.

    Numbers of one digit are words of it if `counted`: in failures they are the values of parameters.
    """
    known = {stem: frozenset({stem}) for stem in content_words(question)}
    if is_german(question):
        known = {
            german: frozenset({german, *content_words(word), *content_words(" ".join(translated(word)))})
            for word in _WORD.findall(question.lower())
            if not stop_word(word) and (german := stem(word)) and content_words(word)
        } | {form: frozenset({form}) for word in _JOINED.findall(question) for form in content_words(word)}
        if restarts(question):
            known["restart"] = frozenset({"restart"})
    if counted:
        known |= {digit: frozenset({digit}) for digit in digits(question)}
    bags = list(found)
    held = {word: sum(not said.isdisjoint(bag) for bag in bags) for word, said in known.items()}
    rare = {word: math.log(1 + len(bags) / (1 + count)) for word, count in held.items()}
    return QuestionTerms(question, rare, known, frozenset(word for word, count in held.items() if not count))


def digits(text: str) -> frozenset[str]:
    """The numbers of one digit, which tell a row, a code or a version from others."""
    return frozenset(_DIGIT.findall(text))


def words_of(text: str) -> frozenset[str]:
    """The content words of a text; of a German one its German stems and English words for them as well."""
    words = content_words(text) | digits(text)
    if not is_german(text):
        return words
    german = frozenset(stem(word) for word in _WORD.findall(text.lower()) if not stop_word(word))
    return words | german | content_words(english(text) or "")
