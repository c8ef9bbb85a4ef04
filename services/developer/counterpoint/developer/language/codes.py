"""Codes: exit codes, exceptions, SQLSTATEs and alerts."""

import re
from collections.abc import Iterable, Set
from functools import lru_cache

from counterpoint.proto.signature import signature

COMMON = 3
"""Number of different errors, with as many different fixes, from which a code in them distinguishes nothing; also the
number of sections found. Of the 195 fixed errors of examples/recognition-training only `OutOfMemoryError` has so many;
in the memory of one project wrappers such as `SparkException` have."""

_CODE = re.compile(
    r"\b[A-Za-z]\w*(?:Error|Exception|Failure|Fault|Warning|Timeout|Killed|BackOff|Down)\b"
    r"|\b[A-Z][A-Z0-9]*[-_]?\d{2,}\b|\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b"
    r"|\bE[A-Z]{3,}\b|\burn:[\w.-]+:[\w.:-]*\w"
    r"|\b(?:exit(?:ed)?(?: with)?(?: exit)?[ -]?(?:code|status)|code|status|errno|signal|SQLSTATE)"
    r"[ :=]*(?:is )?[0-9A-Z]{1,6}\b"
)
_GENERIC = frozenset(("error", "exception", "failure", "fault", "warning", "timeout", "runtimeerror", "valueerror",
                      "keyerror", "typeerror", "exit code 1", "code 1", "status 1", "airflowexception",
                      "airflowfailexception", "runtimeexception", "sparkexception", "executionexception",
                      "completionexception", "invocationtargetexception", "undeclaredthrowableexception",
                      "calledprocesserror", "sqlexception", "dbtruntimeerror"))  # fmt: skip
_QUOTED = re.compile(r"`([^`\n]{1,200})`|\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”")
_QUOTED_WORDS_MIN = 3
"""Minimum words of a quoted message; two ("compilation error") are in many errors."""
_LINE_WORDS_MIN, _LINE_CHARS_MAX, _LINES_MAX, _TAILS_MAX = 4, 400, 30, 4
"""Minimum words and maximum characters of a line of a failure that is a message, the maximum number of such lines, and
of parts after a colon of each."""
_COLON = re.compile(r": ")
"""The colon of a line."""
_DIGITS = re.compile(
    r"(\b[A-Z]{1,12}[-_]?\d{2,6}\b|\bSQLSTATE[ :=]+\w+"
    r"|\b(?:[Ee]xit(?:ed)? (?:with )?(?:code|status)|errno|signal)[ :=]+\d+)|\d+"
)
"""The numbers of a message: those of an error code are captured."""
_MESSAGE_WORD = re.compile(r"(?<!\S)[^\W\d_]{2,}(?!\w)")
_ALERT_LINE = re.compile(
    r"^[ \t]*(?:\[[\w:]{1,40}\][ \t]?)?([A-Za-z][A-Za-z0-9]+)(?=:| critical\b| warning\b)", re.MULTILINE
)
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
ALERT_PARTS_MIN = 3
"""Minimum parts of an alert's name in camel case, since product names such as `OpenShift` have two."""
_NUMBERED = re.compile(
    r"(?<!\w)(?:(?P<word>exit code|errno|signal|sqlstate) \d[\da-z]{0,5}|(?P<prefix>[a-z]{1,12}[-_]?)\d{2,6})(?!\w)"
)
"""A numbered error code, normalised: its family, a word or a prefix, and its number."""
_SPACE = re.compile(r"[\s:=]+")
_EXIT = re.compile(r"exit(?:ed)?(?: with)?(?: exit)?[ -]?(?:code|status)", re.IGNORECASE)


def codes_of(failure: str, common: Set[str] = frozenset()) -> tuple[str, ...]:
    """Return the specific codes, exceptions and alerts in a failure, normalised, without `common` ones."""
    found = (normalise(code[0]) for code in _CODE.finditer(failure))
    return tuple(dict.fromkeys(code for code in found if code not in _GENERIC and code not in common))


def is_telling(error_class: str) -> bool:
    """Return whether a class tells what has failed, unlike `Error` or that of a wrapper."""
    return normalise(error_class.rpartition(".")[2]) not in _GENERIC


def common_codes(fixes: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the codes of a wrapper, such as `SparkException`, which do not tell what has failed: those of at least
    `COMMON` errors with different templates, with as many different fixes. `fixes` are errors with their fixes."""
    known: dict[str, tuple[set[str], set[str]]] = {}
    for error, fix in fixes:
        for code in codes_of(error):
            templates, acts = known.setdefault(code, (set(), set()))
            templates.add(signature(error).digest)
            acts.add(" ".join(fix.split()).casefold())
    return frozenset(code for code, (templates, acts) in known.items() if min(len(templates), len(acts)) >= COMMON)


@lru_cache(maxsize=256)
def normalise(text: str) -> str:
    """Normalise a text like the codes."""
    return _SPACE.sub(" ", _EXIT.sub("exit code", text)).casefold()


def first_code_in(codes: tuple[str, ...], text: str) -> str | None:
    """Return the first of the codes that is a whole word of the text."""
    normalised = normalise(text) if codes else ""
    present = (code for code in codes if code in normalised)
    return next((code for code in present if re.search(rf"(?<!\w){re.escape(code)}(?!\w)", normalised)), None)


def other_codes(codes: Iterable[str], text: str) -> frozenset[str]:
    """Return the error codes of a text that are of the same family as one of the codes, such as `TW-2208` for `TW-2231`
    or exit code 91 for 92; none if it has one of the codes."""
    ours = {code: match.lastgroup and match[match.lastgroup] for code in codes if (match := _NUMBERED.fullmatch(code))}
    theirs = {match[0]: match[match.lastgroup or 0] for match in _NUMBERED.finditer(normalise(text))} if ours else {}
    others = frozenset(code for code, family in theirs.items() if family in ours.values() and code not in _GENERIC)
    return others if others.isdisjoint(ours) else frozenset()


def quotes_in(text: str) -> list[str]:
    """Return what a text quotes."""
    return [next(filter(None, match.groups())) for match in _QUOTED.finditer(text)]


def alert_in(headings: Iterable[str], failure: str) -> str | None:
    """Return the first heading that consists of the name of an alert, such as `KubePodCrashLooping`, if the failure
    contains it."""
    words = frozenset(re.findall(r"\w+", failure))
    names = (heading.strip(" `*:#") for heading in headings)
    return next((name for name in names if name in words and is_alert(name)), None)


def alert_of(failure: str) -> str | None:
    """Return the name of the alert with which a line of the failure begins."""
    names = (line[1] for line in _ALERT_LINE.finditer(failure))
    return next((name for name in names if is_alert(name) and not name.endswith(("Error", "Exception"))), None)


def is_alert(name: str) -> bool:
    """Return whether a text is a name in camel case like that of an alert."""
    parts = len(_HUMP.findall(name)) if name.isalnum() else 0
    return parts >= ALERT_PARTS_MIN or (parts > 1 and name.endswith("Down"))


def messages_quoted(text: str, failure: str) -> frozenset[str]:
    """Return the messages of several words that a text quotes and that the failure contains literally."""
    wanted = " ".join(failure.split()).casefold()
    quoted = (" ".join(quote.split()).casefold() for quote in quotes_in(text))
    return frozenset(each for each in quoted if _word_count(each) >= _QUOTED_WORDS_MIN and each in wanted)


def messages_shown(text: str, failure: str) -> frozenset[str]:
    """Return the lines of a failure, and what follows a colon in them, that a text contains with the same error codes
    and any other numbers."""
    shown = _masked(text)
    return frozenset(each for each in _lines_of(failure) if _masked(each) in shown)


@lru_cache(maxsize=16)
def _lines_of(failure: str) -> tuple[str, ...]:
    """Return the messages of a failure: its first long lines, and what follows each colon in them."""
    lines = dict.fromkeys(" ".join(line.split()) for line in failure.splitlines() if len(line) <= _LINE_CHARS_MAX)
    messages = [line for line in lines if _word_count(line) >= _LINE_WORDS_MIN][:_LINES_MAX]
    tails = (line[colon.end() :] for line in messages for colon in [*_COLON.finditer(line)][:_TAILS_MAX])
    return tuple(each for each in (*messages, *tails) if _word_count(each) >= _LINE_WORDS_MIN)


def _word_count(message: str) -> int:
    return len(_MESSAGE_WORD.findall(message))


def _masked(text: str) -> str:
    return _DIGITS.sub(lambda number: number[1] or "#", " ".join(text.split())).casefold()
