"""Patterns of secrets that the rules of gitleaks lack or match worse: one finder per kind, over normalised text.

Each finder first searches for a required literal, which costs a hundredth of a pattern and which most texts lack. Kinds
are ordered: overlapping findings get the earlier kind.
"""

import binascii
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from counterpoint.guard.entropy import entropy
from counterpoint.guard.kinds import Span
from counterpoint.guard.known_examples import is_known_example
from counterpoint.guard.placeholders import holds_chosen, is_blank, is_placeholder, is_stock, is_word
from counterpoint.guard.randomness import has_random_run, is_masked, is_random

STANDARD_BASE64 = str.maketrans("-_", "+/")
"""Translation from the URL-safe alphabet to the standard one."""

REDACTED = re.compile(r"\[redacted:[a-z0-9_]+(?::[0-9a-f]{16})?\]")
"""A redaction tag, in names with a fingerprint. It is never part of a secret."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A kind of secret: `regex` is tried only at occurrences of `literals`.

    Group 1, if any, is the secret, and the rest its context. `valid` checks the secret's text.
    """

    kind: str
    literals: tuple[str, ...]
    regex: re.Pattern[str]
    valid: Callable[[str], bool]

    def find(self, text: str) -> Iterator[Span]:
        """Yield the spans of this kind in `text`."""
        for literal in self.literals:
            at = text.find(literal)
            while at >= 0:
                match = self.regex.match(text, at)
                at += len(literal)
                if match is not None:
                    group = min(self.regex.groups, 1)
                    if self.valid(match[group]):
                        yield match.span(group)
                    at = max(at, match.end())
                at = text.find(literal, at)


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_WORDS = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[-_./:](?:[A-Z]?[a-z]+|[A-Z]+))*")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_HEX_ENTROPY, _KEY_ENTROPY = 3.0, 3.5
_NAME = re.compile(r"(?:[A-Za-z]+[0-9]{0,2}|[0-9]+)(?:[-_./](?:[A-Za-z]+[0-9]{0,2}|[0-9]+))+")
"""An identifier of words and numbers, such as `app-db-2-credentials`."""
_NAME_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{3,}(?![A-Za-z0-9])")


def _bare(value: str) -> str:
    """Return `value` without Markdown quotes and the punctuation around it."""
    return value.lstrip("`*" if "]" in value else "`*[").rstrip(")]}.,:`*")


def is_password(value: str) -> bool:
    """Whether `value`, assigned to a password, is neither a placeholder nor plain words."""
    value = _bare(REDACTED.sub("", value))
    mixed = sum(any(test(char) for char in value) for test in (str.islower, str.isupper, str.isdigit, _is_sign))
    plain = _WORDS.fullmatch(value) is not None or is_word(value)
    return len(value) >= 6 and mixed >= 2 and not is_placeholder(value) and not plain


def is_key(value: str) -> bool:
    """Whether `value`, assigned to a key, looks random: long, with digits among letters, not an identifier of words.

    A key has no space; a word before it names the scheme.
    """
    value = max(REDACTED.sub("", value).split(), key=len, default="")
    return (
        len(value) >= 16
        and any(char.isdigit() for char in value)
        and any(char.isalpha() for char in value)
        and entropy(value) >= (_HEX_ENTROPY if _HEX.fullmatch(value) else _KEY_ENTROPY)
        and _NAME.fullmatch(value) is None
        and 2 * sum(map(len, _NAME_WORD.findall(value))) < len(value)
        and not is_placeholder(value)
    )


def is_token(value: str) -> bool:
    """Whether `value`, assigned to a token, is one; a UUID is an id."""
    return is_key(value) and _UUID.fullmatch(value) is None


def _is_sign(char: str) -> bool:
    return not char.isalnum() and char not in "-_."


_Judge = Callable[[str], bool]
_NAME_CHARS = 64
_KEY_WORDS = ("api", "access", "auth", "account", "private", "signing")
_NAMES: tuple[tuple[str, tuple[str, ...], _Judge], ...] = (
    ("passw", ("",), is_password),
    ("passphrase", ("",), is_password),
    ("identified by", ("",), is_password),
    ("pwd", ("",), is_password),
    ("token", ("",), is_token),
    ("secret", ("",), is_key),
    ("credential", ("",), is_key),
    ("key", tuple(word + sign for word in _KEY_WORDS for sign in ("", "_", "-")), is_key),
)
"""Part of a key name, the required text before it, and the check of its value."""

_ASSIGNED = re.compile(
    r"(?P<rest>[A-Za-z0-9_-]{0,24})"  # the rest of the name
    r"\\?[\"']?\]?\s{0,3}(?:(?::=|=>|==?)[ \t]{0,3}|:(?!:[A-Za-z_])\s{0,3})"
    r"(?:\\?\"((?:[^\"\\\n]|\\[^\"\n])+)|\\?'([^'\\\n]+)"
    r"|((?:(?!\)\]\(|</[a-z])[^\s\"',;&|])+))"  # a link or tag ends it
)
_QUOTED = re.compile(r"(?i)(?:ord|d)?(?:\s{1,3}is)?:?\s{1,3}'((?:[^'\\\n])+)'")
_SPOKEN = re.compile(r"(?i)(?:ord|d|s)?(?:\s{1,3}is)?[ \t]{1,3}[`\"']?([A-Za-z0-9+/=_.!#$%&*^-]{10,})")
_BEHIND = frozenset(" \t\nodsODS:")
"""Characters before an unassigned value: a space, or the rest of the word."""
_OPTION = re.compile(r"[a-z-]{0,12} {1,2}([^\s\"',;&|-][^\s\"',;&|]*)")


def find_assignments(text: str) -> Iterator[Span]:
    """Yield values assigned to the name of a password or key: `password=...`, `"api_key": "..."`, `--token ...`."""
    lowered = text.replace("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "I").lower()
    for part, befores, valid in _NAMES:
        at = lowered.find(part)
        while at >= 0:
            end = at + len(part)
            if lowered.endswith(befores, 0, at):
                match = _ASSIGNED.match(text, end)
                if match is None and _is_option(lowered, at):
                    match = _OPTION.match(text, end)
                if match is None and text[end : end + 1] in _BEHIND:
                    match = _QUOTED.match(text, end) or _spoken(text, end)
                if match is not None and match.lastindex is not None:
                    secret = match.lastindex
                    rest = match.groupdict().get("rest") or ""
                    if match[secret].startswith("--"):
                        at = lowered.find(part, end)
                        continue
                    if _is_about(lowered, at, rest) or _is_name(lowered, at, rest, match[secret]):
                        pass
                    elif valid(match[secret]):
                        yield match.span(secret)
                    elif ("(" in match[secret] or "{" in match[secret]) and is_blank(match[secret]):
                        yield from _fallback(text, match.end())
                    end = match.end()
            at = lowered.find(part, end)


def _spoken(text: str, at: int) -> re.Match[str] | None:
    """Match a value after a space, which must be random: `machine api login me password ...`."""
    match = _SPOKEN.match(text, at)
    return match if match is not None and has_random_run(match[1]) and _NAME.fullmatch(match[1]) is None else None


_OPEN = ("no", "public", "public_", "public-", "csrf", "csrf_", "csrf-", "xsrf", "xsrf_", "xsrf-")
_SEARCH_BOX, _SEARCH_BOX_CHARS = "docsearch({", 96
_ABOUT = re.compile(r"(?i)s?[_-]?(?:ids?|names?|uris?|urls?|paths?|files?|types?|variables?|refs?)")
_MANNER = re.compile(
    r"(?i)(?:ord|d)?s?(?:[_.-]?encryption|[_.-]?commands?|[_.-]?hash(?:ing|er)?(?:[_-](?:module|algorithm))?|[_.-]?algorithms?|[_.-]?policy"
    r"|[_.-]?modules?|[_.-]?methods?|[_.-]?fields?|[_.-]?columns?|[_.-]?callbacks?|[_.-]?validators?|[_.-]?plugins?"
    r"|[_.-]?prompts?|[_.-]?secret(?:[_-]?(?:key|name))?|[_.-]?env|[_.-]?names?|[_.-]?paths?|[_.-]?files?|[_.-]?refs?)"
)
"""The rest of a name for how or where a password is stored; its value is an identifier."""
_NAMED = re.compile(r"[A-Za-z][\w./ -]*")
_OF_PLACE = re.compile(r"arn:aws[a-z-]{0,8}:[a-z]{0,24}$")
"""The start of an AWS resource name that includes a secrets service."""
_OF_PLACE_CHARS = 48
_DEFAULT = re.compile(r"[^\n\"']{0,64}[\"']([^\"'\s]{8,128})[\"']")
"""The default value of a lookup: the next quoted text."""


def _is_about(lowered: str, at: int, rest: str) -> bool:
    """Whether a name refers to a secret's location or identity, or to public data, and not to the secret."""
    return _ABOUT.fullmatch(rest) is not None or lowered.endswith(_OPEN, 0, at) or is_in_search_box(lowered, at)


def is_in_search_box(text: str, at: int) -> bool:
    """Whether a key is an argument of a search box in a page, which is public."""
    _, box, before = text[max(0, at - _SEARCH_BOX_CHARS) : at].lower().rpartition(_SEARCH_BOX)
    return box != "" and "}" not in before


def _is_name(lowered: str, at: int, rest: str, value: str) -> bool:
    """Whether a value identifies how or where a password is stored, with nothing random in it."""
    named = _MANNER.fullmatch(rest) is not None and _NAMED.match(value) is not None and not holds_chosen(value)
    return named or (
        _OF_PLACE.search(lowered, max(0, at - _OF_PLACE_CHARS), at) is not None and not has_random_run(value)
    )


def _fallback(text: str, at: int) -> Iterator[Span]:
    """Yield a random quoted default after an expression that ends at `at`: `os.environ.get("PASSWORD", "...")`."""
    match = _DEFAULT.match(text, at)
    if match is not None and has_random_run(match[1]) and is_password(match[1]):
        yield match.span(1)


def _is_option(lowered: str, at: int) -> bool:
    dashes = lowered.rfind("--", max(0, at - 24), at)
    return dashes >= 0 and " " not in lowered[dashes:at]


def is_assigned(name: str, value: str) -> bool:
    """Whether `value` of the mapping key `name` is a password or key."""
    judges = _judges(name) if len(name) <= _NAME_CHARS else _judges.__wrapped__(name)
    return bool(judges) and any(valid(value) for valid in judges)


@lru_cache(maxsize=4096)
def _judges(name: str) -> tuple[_Judge, ...]:
    """Return the checks for values of a name, cached; most names have none."""
    lowered = REDACTED.sub("", name).lower()
    return tuple(
        valid
        for part, befores, valid in _NAMES
        if any(lowered.endswith(befores, 0, match.start()) for match in re.finditer(part, lowered))
    )


def _is_jwt(token: str) -> bool:
    if is_known_example(token):
        return False
    header = token.split(".", 1)[0].translate(STANDARD_BASE64)
    try:
        decoded = json.loads(binascii.a2b_base64(header + "=" * (-len(header) % 4)))
    except ValueError:
        return False
    return isinstance(decoded, dict) and ("alg" in decoded or "typ" in decoded)


def _is_basic(credentials: str) -> bool:
    try:
        opened = binascii.a2b_base64(credentials + "=" * (-len(credentials) % 4)).decode()
    except ValueError:
        return False
    user, colon, password = opened.partition(":")
    return bool(colon) and opened.isprintable() and not is_default(user, password)


def is_default(user: str, password: str) -> bool:
    """Whether a password is a placeholder, a known example or the user name."""
    return (
        is_known_example(f"{user}:{password}") or is_placeholder(password) or (password == user and not is_random(user))
    )


def _is_bearer(token: str) -> bool:
    return any(char.isdigit() for char in token) and entropy(token) >= 3.0 and not is_placeholder(token)


def _is_aws_access_key(key: str) -> bool:
    return not key.endswith("EXAMPLE") and not is_masked(key)


def _is_drawn(token: str) -> bool:
    return entropy(token) >= 3.0 and not is_masked(token) and not is_stock(token)


def has_key_body(block: str) -> bool:
    """Whether a private key has more than its first and last line."""
    return _KEY_BODY.search(block) is not None


_KEY_BODY = re.compile(r"[A-Za-z0-9+/]{24}")
_ALONE = r"(?<![A-Za-z0-9])"

PATTERNS = (
    Pattern(
        "private_key",
        ("-----BEGIN ",),
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[^-]*(?:-(?!----)[^-]*)*-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"|[A-Za-z0-9+/=\s\\]{32,})"
        ),
        has_key_body,
    ),
    Pattern(
        "aws_access_key",
        ("AKIA", "ASIA"),
        re.compile(_ALONE + r"A[KS]IA[A-Z2-7]{16}(?![A-Za-z0-9])"),
        _is_aws_access_key,
    ),
    Pattern(
        "github_token",
        ("gh", "github_pat_"),
        re.compile(r"(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{36,255})"),
        _is_drawn,
    ),
    Pattern(
        "slack_token",
        ("xox", "xapp-", "hooks.slack.com/"),
        re.compile(
            r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,250}|xapp-[0-9]-[A-Za-z0-9-]{20,250}"
            r"|hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{40,250}"
        ),
        _is_drawn,
    ),
    Pattern(
        "service_key", ("sk-",), re.compile(_ALONE + r"sk-(?:proj-)?[A-Za-z0-9]{20,250}(?![A-Za-z0-9_-])"), _is_drawn
    ),
    Pattern(
        "jwt",
        ("eyJ", "eyA"),
        re.compile(r"(?<![A-Za-z0-9_-])e[A-Za-z0-9_-]{11,}\.e[A-Za-z0-9_-]{11,}(?:\.[A-Za-z0-9_-]*)?"),
        _is_jwt,
    ),
    Pattern("bearer", ("earer ", "EARER "), re.compile(r"(?i:earer) {1,3}([A-Za-z0-9._~+/=-]{16,})"), _is_bearer),
    Pattern("basic_auth", ("asic ", "ASIC "), re.compile(r"(?i:asic) {1,3}([A-Za-z0-9+/]{8,}={0,2})"), _is_basic),
)
"""The kinds with a pattern, in order; `find_assignments` comes after them."""
