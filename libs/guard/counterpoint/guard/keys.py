"""Service keys and tokens, found by the rules of gitleaks and a few of our own.

A rule runs only when the text has one of its keywords; one automaton finds all keywords in one pass.
"""

import binascii
import re
from collections.abc import Iterator
from functools import lru_cache

from counterpoint.guard.automata import Words
from counterpoint.guard.gitleaks import gitleaks_rules
from counterpoint.guard.kinds import Span, class_of
from counterpoint.guard.patterns import has_key_body, is_default, is_in_search_box, is_password
from counterpoint.guard.placeholders import is_placeholder, is_word
from counterpoint.guard.randomness import has_random_run
from counterpoint.guard.rule import Rule

_OWN = (
    Rule("telegram_token", (b":aa",), rb"(?:^|[^\w-])([0-9]{8,10}:AA[\w-]{33})(?:[^\w-]|$)", 3.0, 1),
    Rule("mailchimp_key", (b"-us",), rb"\b([0-9a-f]{32}-us[0-9]{1,2})\b", 3.0, 1),
    Rule("discord_token", (), rb"(?:^|[^\w.-])([MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40})(?:[^\w.-]|$)", 3.0, 1),
)
"""Keys recognised by their form alone, where the rules of gitleaks require the service's name nearby."""

_MANIFEST = "kubernetes_secret_yaml"
_ITEM = re.compile(rb"[ \t]*\r?\n[ \t]+([\w.-]+:[ \t]*[\"']?[A-Za-z0-9+/]{10,}={0,3}[\"']?)(?=\s|$)")
"""The next item of a mapping with base64 values."""
_CONTEXT = frozenset(
    ["generic_api_key", "hashicorp_tf_password", _MANIFEST, "private_key", "curl_auth_user", "curl_auth_header"]
)
"""Rules that match by context, whose value must be checked too."""

_CERTIFICATE, _HEAD, _HEAD_CHARS = "LS0tLS1CRUdJTiBDRVJU", "LS0tLS1CRUdJTi", 44
"""The base64 of `-----BEGIN CERT`, that of `-----BEGIN`, and the length of a key's whole header."""
_EMPTY_BLOCK = re.compile(rb"-----BEGIN [A-Z ]{1,40}-----\s*-----END [A-Z ]{1,40}-----")
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@lru_cache(maxsize=1)
def _rules() -> tuple[tuple[Rule, ...], Words, dict[bytes, tuple[int, ...]]]:
    """Return all rules, the automaton of their keywords, and rule numbers by keyword; rules without one under b""."""
    rules = (*_OWN, *gitleaks_rules())
    holding: dict[bytes, list[int]] = {}
    for number, rule in enumerate(rules):
        for word in rule.keywords or (b"",):
            holding.setdefault(word, []).append(number)
    words = Words(tuple(word for word in holding if word))
    return rules, words, {word: tuple(numbers) for word, numbers in holding.items()}


def find_keys(text: bytes) -> Iterator[tuple[str, Span]]:
    """Yield the findings of the rules in an ASCII text, in which other characters are `?`.

    A UUID found by a rule without a service name is an id, not a key.
    """
    rules, words, holding = _rules()
    for number in sorted({number for word in (b"", *words.within(text)) for number in holding.get(word, ())}):
        kind = rules[number].kind
        for start, end in rules[number].find(text) if kind != _MANIFEST else _manifests(rules[number], text):
            if class_of(kind) == "uncertain" and (
                _UUID.fullmatch(text, start, end) or is_in_search_box(text.decode("latin-1"), start)
            ):
                continue
            if kind not in _CONTEXT or _is_secret(kind, text[start:end].decode("latin-1")):
                yield kind, (start, end)


def _manifests(rule: Rule, text: bytes) -> Iterator[Span]:
    """Yield the items of a Kubernetes Secret after the first one, which the rule finds."""
    for start, end in rule.find(text):
        yield start, end
        item = _ITEM.match(text, end)
        while item is not None:
            yield item.span(1)
            item = _ITEM.match(text, item.end())


def _is_secret(kind: str, found: str) -> bool:
    """Whether a finding of a rule in `_CONTEXT` is neither a placeholder nor a plain word."""
    if kind == _MANIFEST:
        found = found.partition(":")[2].strip()
        if _is_certificate(found.strip("\"'")) or is_word(found.strip("\"'")):
            return False
    elif kind == "private_key":
        return has_key_body(found)
    elif kind == "curl_auth_user":
        user, _, password = found.partition(":")
        password = password.strip("\"'")
        return not password or not is_default(user.strip("\"'"), password)
    value = found.strip("\"'")
    if kind == "generic_api_key":
        return not is_placeholder(value) and not is_word(value) and has_random_run(value)
    return not is_placeholder(value) and (kind != "hashicorp_tf_password" or is_password(value))


def _is_certificate(value: str) -> bool:
    """Whether a value is the base64 of a certificate, which is public, or of an empty key."""
    if value.startswith(_CERTIFICATE) or (value.startswith(_HEAD) and len(value) <= _HEAD_CHARS):
        return True
    try:
        block = binascii.a2b_base64(value) if value.startswith(_HEAD) else b""
    except binascii.Error:
        return False
    return _EMPTY_BLOCK.fullmatch(block.strip()) is not None
