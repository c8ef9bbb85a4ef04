"""Parts of a question: its weighted words, its exact forms, and the kind of value that it asks for."""

import math
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from counterpoint.developer.language.codes import codes_of
from counterpoint.developer.language.compounds import compounds_with, parts
from counterpoint.developer.language.german import (
    borrowed_words,
    english,
    english_words,
    german_sequence,
    is_everyday,
    is_german,
    is_listed,
    known_stems,
    restarts,
    stem,
)
from counterpoint.developer.language.kinds import OURS, PERMISSION, Kind, kind_of
from counterpoint.developer.language.similar_words import similar_words
from counterpoint.developer.language.words import content_words, everyday_stems

_MEASURES = content_words("long often soon old many much big large high far lange oft alt viel hoch groß")
_DIGIT = re.compile(r"\d(?<![\w.,:/-]\d)(?![\w.,:/-]|\. )")
_VERSION = re.compile(r"(?<![\w.,:/-])v?(\d{1,4}\.\d{1,4})(?![\w:/-])")
_TARGET = re.compile(r"\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)?\)")
_JOINED = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b|\b\w*[a-z][A-Z]\w*\b|\b\w*\d\w*\b|\b\w+(?:[._/:=]\w+)+")


@dataclass(frozen=True)
class QuestionTerms:
    """A question. `worth` are its words with their idf among the results; `synonyms` are alternatives of a word;
    `missing` are words that no result contains; `common` are codes of many failures; `everyday` are those
    that name nothing."""

    text: str
    worth: Mapping[str, float]
    synonyms: Mapping[str, frozenset[str]]
    missing: frozenset[str] = frozenset()
    common: frozenset[str] = frozenset()
    everyday: frozenset[str] = frozenset()

    @cached_property
    def codes(self) -> tuple[str, ...]:
        """The codes that distinguish it."""
        return codes_of(self.text, self.common)

    @cached_property
    def kind(self) -> Kind | None:
        """The kind of value asked for, if any."""
        return kind_of(self.text)

    @cached_property
    def permission(self) -> bool:
        """Whether it is a yes-or-no question."""
        return PERMISSION.search(self.text) is not None

    @cached_property
    def ours(self) -> bool:
        """Whether it is about the asker's own organisation."""
        return OURS.search(self.text) is not None

    def fits(self, text: str) -> bool:
        """Return whether a text contains the kind of value asked for."""
        return self.kind is not None and self.kind.answers.search(text) is not None

    @cached_property
    def telling(self) -> frozenset[str]:
        """The words that name things, without everyday words."""
        return frozenset(self.synonyms) - self.everyday

    def telling_beside(self, subject: Set[str]) -> Set[str]:
        """Return the words that tell what is asked about the subject of a page: those that name things, or any others
        but the measure after "how", which an answer has a value for; all that name things if there are none."""
        others = self.worth.keys() - subject
        return self.telling - subject or (others if others - _MEASURES else self.telling)

    def with_similar(self, words: Set[str]) -> "QuestionTerms":
        """Return the same question with words that are spelled like its own as synonyms, of the same weights."""
        missing = {word: forms for word, forms in self.synonyms.items() if forms.isdisjoint(words)}
        similar = similar_words(frozenset().union(*missing.values()), words)
        found = {word: forms.union(*(similar[form] for form in forms)) for word, forms in missing.items()}
        return replace(self, synonyms={**self.synonyms, **found})

    def words_in(self, text: str) -> frozenset[str]:
        """Return the words of the question in a text, also by synonyms."""
        return self.matching(words_of(text))

    def matching(self, words: Set[str]) -> frozenset[str]:
        """Return the words of the question among words, also by synonyms."""
        words = frozenset(words)
        if (known := self._matched.get(words)) is None:
            known = frozenset(word for word, forms in self.synonyms.items() if not forms.isdisjoint(words))
            self._matched[words] = known
        return known

    @cached_property
    def _matched(self) -> dict[frozenset[str], frozenset[str]]:
        """The results of `matching`: each section is compared a dozen times."""
        return {}

    def share(self, words_in: Iterable[str]) -> float:
        """Return the share in [0, 1] of the question's total weight in these words."""
        total = math.fsum(self.worth.values())
        return math.fsum(self.worth[word] for word in words_in) / total if total else 0.0

    def telling_share(self, text: str) -> float:
        """Return the share in [0, 1] of the weight of its telling words that are in a text."""
        return self.share_of(self.telling, self.words_in(text)) if self.telling else 0.0

    def share_of(self, words: Set[str], words_in: Set[str]) -> float:
        """Return the share in [0, 1] of the weight of some words of the question that is in others; 1 of none."""
        total = math.fsum(self.worth[word] for word in words)
        return math.fsum(self.worth[word] for word in words & words_in) / total if total else 1.0


def question_terms(
    question: str, found: Iterable[Set[str]], with_digits: bool = True, common: frozenset[str] = frozenset()
) -> QuestionTerms:
    """Return the terms of a question, weighted by idf among texts with these words (`words_of`).

    `with_digits` includes single digits, which in failures are values of parameters. `common` are codes that
    distinguish nothing.
    """
    bags = list(found)
    synonyms = {stem: frozenset({stem}) for stem in content_words(question)}
    everyday = everyday_stems() & synonyms.keys()
    if any(map(is_german, question.splitlines())):
        synonyms, everyday = _german_terms(question, frozenset().union(*bags))
    if with_digits:
        synonyms |= {digit: frozenset({digit}) for digit in digits(question)}
    words_in = {word: sum(not forms.isdisjoint(bag) for bag in bags) for word, forms in synonyms.items()}
    rare = {word: math.log(1 + len(bags) / (1 + count)) for word, count in words_in.items()}
    missing = frozenset(word for word, count in words_in.items() if not count)
    return QuestionTerms(question, rare, synonyms, missing, common, everyday)


def _german_terms(question: str, found: Set[str]) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """Return the words of a German question with their forms, and those that are everyday words.

    Forms are the stem, the translations, and the compounds with the word among those `found`. A compound that is not
    found, and has no translation of its own, stands for its parts, if both are known and one is found.
    """
    synonyms, everyday = dict[str, frozenset[str]](), set[str]()
    for word in german_sequence(question):
        own = frozenset({stem(word), *content_words(word)})
        english = content_words(" ".join(translations(word)))
        pair = parts(word, found | known_stems()) if own.isdisjoint(found) and not is_listed(word) else ()
        halves = {part: frozenset({part, *content_words(" ".join(english_words(part)))}) for part in pair}
        if english <= everyday_stems() if english_words(word) else is_everyday(word):
            everyday.add(stem(word))
        if not found.isdisjoint(frozenset().union(*halves.values())):
            synonyms |= {part: forms | synonyms.get(part, frozenset()) for part, forms in halves.items()}
        elif content_words(word):
            synonyms[stem(word)] = own | english
    names = {form for word in _JOINED.findall(question) for form in content_words(word)}
    synonyms |= {form: frozenset({form}) for form in names}
    for word, compounds in compounds_with(synonyms.keys(), found, found | known_stems() | synonyms.keys()).items():
        synonyms[word] |= compounds
    if restarts(question):
        synonyms["restart"] = frozenset({"restart"})
        everyday.add("restart")
    return synonyms, frozenset(everyday | names & everyday_stems())


def translations(word: str) -> tuple[str, ...]:
    """Return the English words for a German one, or those that it may be a form of."""
    return english_words(word) or tuple(sorted(borrowed_words(word)))


def digits(text: str) -> frozenset[str]:
    """Return the single digits, which distinguish rows and codes, and the versions."""
    return frozenset((*_DIGIT.findall(text), *_VERSION.findall(text)))


@lru_cache(maxsize=8_000)
def words_of(text: str) -> frozenset[str]:
    """Return the content words of a text, without the targets of links; for a German text also German stems and their
    translations."""
    text = _TARGET.sub("]", text)
    return content_words(text) | digits(text) | german_words(text)


@lru_cache(maxsize=8_000)
def german_words(text: str) -> frozenset[str]:
    """Return the stems of the words of a German text and their translations; none of another text."""
    if not is_german(text):
        return frozenset()
    german = frozenset(map(stem, german_sequence(text)))
    return german | content_words(english(text) or "")
