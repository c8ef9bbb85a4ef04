"""Passwords in connection strings: `scheme://user:password@host`.

A random password is a secret at any host. A guessable one is ignored at an example host, and `uncertain` at others.
"""

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import unquote

from counterpoint.guard.kinds import Span
from counterpoint.guard.patterns import REDACTED
from counterpoint.guard.placeholders import is_blank, is_open, is_stock
from counterpoint.guard.randomness import has_random_run, is_masked

_USERINFO = re.compile(
    r"://(?P<user>[^\s:/?#@\"'<>]{0,128}|<[^<>\s]{1,64}>):(?P<password>[^\s/@\"'<>]{1,256}|<[^<>\s]{1,64}>)"
    r"@(?P<host>[^\s/:?#\"'`,;()\\]{1,255})"
)
_DEFAULTS = frozenset(
    [("scott", "tiger"), ("sa", "sa"), ("elastic", "changeme"), ("root", "root"), ("scott", "tiger^5HHH")]
)
_ANYBODY = re.compile(
    r"(?:(?:my|your|some|the|a)[-_]?)?(?:(?:db[-_]?)?user(?:[-_]?name)?|usr|name|login|account)\d?|guest|foo",
    re.IGNORECASE,
)
"""Generic user names; with one, a word for a secret is a template at any host."""
_DESCRIBED = re.compile(
    r"(?:.*[._-])?(?:your|some|my|the)[-_]?(?:pass(?:word|wd)?|pwd|secret|token|api[-_]?key)"
    r"|(?:[A-Za-z]+_){2,}(?:password|passwd|token|secret|key)|(?:auth|access|api|secret)[-_]?key|(?-i:(?:[A-Z]+_)+(?:PASSWORD|TOKEN|SECRET|KEY))",
    re.IGNORECASE,
)
"""Words that describe a password's owner or setting."""
_LETTERS = re.compile(r"[A-Za-z]+(?:[-_.][A-Za-z]+)*")
_WORD_CHARS_MAX = 24
_EXAMPLE_HOST = re.compile(
    r"(?:localhost|host\.docker\.internal|\[?::1\]?|.*\.(?:example|test|invalid|localhost|tld|domain)"
    r"|(?:.*\.)?(?:example|contoso|fabrikam|company)\.(?:com|org|net|edu)|host\.name|.*(?:hostname|placeholder).*|(?:example[\w-]+|[\w-]+example[\w-]*)(?:\..*)?"
    r"|(?:.*[.-])?(?:my|your|some)[-_]?(?:host|server|domain|company|cluster|account|broker|db|database|org)[\w-]*(?:\..*)?"
    r"|host\d?|server\d?|dbserver|ip|domain|remote|target|source|endpoint|address|proxy|proxyserver"
    r"|[<{$%].*)",
    re.IGNORECASE,
)
_DOCUMENTATION = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "127.0.0.0/8")))


def find_passwords(text: str) -> Iterator[tuple[str, Span]]:
    """Yield the passwords of connection strings in `text`: `uri_password`, or `uri_word` if guessable."""
    at = text.find("://")
    while at >= 0:
        match = _USERINFO.match(text, at)
        at += 3
        if match is not None:
            kind = _kind(match["user"], match["password"], match["host"])
            if kind is not None:
                yield kind, match.span("password")
            at = max(at, match.end("password"))
        at = text.find("://", at)


def _kind(user: str, password: str, host: str) -> str | None:
    """Return the kind of a password at a host; None for no password."""
    plain = unquote(REDACTED.sub("", password))
    if not plain or is_blank(plain) or is_masked(plain) or (is_open(plain) and not is_stock(plain)):
        return None
    if not _is_guessable(unquote(user), plain):
        return "uri_password"
    bare_name = "." not in host and ":" not in host and host.isascii()
    stock = is_stock(plain) or plain == unquote(user) or (user, plain) in _DEFAULTS
    return None if is_example_host(host) or (bare_name and stock) else "uri_word"


def _is_guessable(user: str, password: str) -> bool:
    """Whether a password is an ordinary word, the user name, a vendor default, or made of words for a secret."""
    if is_stock(password) or (user, password) in _DEFAULTS:
        return True
    word = len(password) <= _WORD_CHARS_MAX and _LETTERS.fullmatch(password) is not None and _is_one_case(password)
    return (word or password == user) and not has_random_run(password)


def _is_one_case(word: str) -> bool:
    return all(part.islower() or part.isupper() or part.istitle() for part in re.split(r"[-_.]", word))


def is_form(text: str, start: int, end: int) -> bool:
    """Whether the `uri_word` at `text[start:end]` is a template, by its text or its generic user."""
    word = unquote(text[start:end])
    if _DESCRIBED.fullmatch(word) is not None:
        return True
    user = unquote(text[text.rfind("://", 0, start) + len("://") : start - 1])
    mailbox = user.rpartition("@")
    anybody = _ANYBODY.fullmatch(user) is not None or (mailbox[1] != "" and is_example_host(mailbox[2]))
    return anybody and is_stock(word)


def is_example_host(host: str) -> bool:
    """Whether a host occurs in examples only: localhost, RFC 2606, RFC 5737, or a word for a host."""
    host = host.rstrip(".,]})>") or host
    if _EXAMPLE_HOST.fullmatch(host) is not None:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in _DOCUMENTATION if address.version == network.version)
