"""The developer and the manager read texts in linear time, whatever words they have."""

from collections.abc import Callable

import pytest
from growth import LIMIT, growth

from counterpoint.developer.evidence.providers import ProviderLookup
from counterpoint.developer.language.codes import codes_of
from counterpoint.developer.language.exact_forms import exact, words_of
from counterpoint.developer.language.german import english
from counterpoint.developer.language.question_terms import question_terms
from counterpoint.developer.policies.parts import question_parts
from counterpoint.developer.policies.provider_rules import objection_to
from counterpoint.manager.triggers import asks_take_over
from counterpoint.proto.signature import signature
from counterpoint.proto.titles import title_of

CHARS = 16_000
"""Maximum size of a description."""
EXCERPT_CHARS = 1_460
GERMAN = "wie kann ich die daten für das team laden "


def ask(text: str) -> None:
    terms = question_terms(text, ())
    _ = terms.codes, terms.kind, terms.permission, terms.ours, terms.telling
    terms.with_similar(frozenset(text[:EXCERPT_CHARS].split()))


READERS: list[Callable[[str], object]] = [
    ask,
    codes_of,
    exact,
    words_of,
    question_parts,
    asks_take_over,
    lambda text: english(GERMAN + text),
    lambda text: ask(GERMAN + text),
    lambda text: objection_to(text, ProviderLookup(missing=("Snowflake",))),
    lambda text: title_of("", error=text, job="load"),
    lambda text: signature("Traceback (most recent call last):\n" + text),
]
PUMPS = (
    "a",
    "ä",
    "A",
    "1",
    "aA",
    "a1",
    "a_",
    "a-",
    "datenbank",
    "who ",
    "if ",
    "take over ",
    "\n",
    "1.",
    "bash_",
    "not ",
    "a\n",
    "a: ",
    "Aa b. ",
    "a - ",
)


@pytest.mark.parametrize("reader", READERS)
def test_long_words_are_read_in_linear_time(reader: Callable[[str], object]) -> None:
    for pump in PUMPS:
        for end in ("", "\x00"):

            def read(size: int, pump: str = pump, end: str = end) -> object:
                return reader(pump * (size // len(pump)) + end)

            assert growth(read, CHARS) < LIMIT, pump
