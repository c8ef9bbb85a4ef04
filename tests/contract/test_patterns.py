"""Each regular expression takes time linear in its text, whatever the text."""

import re
from functools import partial

import pytest
from growth import LIMIT, growth
from pattern_attacks import Target, attacks, nests, targets

pytestmark = pytest.mark.xdist_group("source")  # the trees of its modules take seconds
CHARS = 8_000
SHORT = (24, 32, 40, 48, 60, 72, 96)
"""Sizes of texts at one of which an exponential pattern is found while it still ends."""
BOUNDED = {
    "counterpoint.guard.connections._EXAMPLE_HOST": 255,  # a host in `_USERINFO`
}
"""Maximum size of the texts that a pattern gets, in characters."""


def slow(target: Target) -> str | None:
    """Return an attack on a pattern that makes it slow; None without one."""
    most = BOUNDED.get(target.name, CHARS)
    sizes = (*SHORT, CHARS) if nests(target.pattern) else (CHARS,)
    for attack in sorted(attacks(target.pattern)):
        for size in sizes:
            if growth(partial(target.run, attack), min(size, most)) >= LIMIT:
                return f"{target.name} {sorted(target.methods)} at {attack}"
    return None


def test_patterns_are_linear() -> None:
    found = targets()

    assert len(found) > 300
    assert [problem for target in found if (problem := slow(target))] == []


@pytest.mark.parametrize(
    ("text", "method"),
    [
        (r"(?:\.?/[\w.]+)+$", "match"),
        (r"(a+)+$", "match"),
        (r"\s+(?=,)", "sub"),
        (r"\w+@", "search"),
        (r"(.*?)\s*$", "fullmatch"),
    ],
)
def test_slow_patterns_are_found(text: str, method: str) -> None:
    assert slow(Target("slow", re.compile(text), {method}))
