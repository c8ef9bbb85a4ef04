"""Network addresses: IPv4, IPv6 and MAC."""

import ipaddress
from collections.abc import Iterator

from counterpoint.guard.automata import compiled, spans
from counterpoint.guard.kinds import Span

_V4 = compiled(rb"(?:^|[^\w.])((?:\d{1,3}\.){3}\d{1,3})")
_V6 = compiled(rb"(?:^|[^\w:.])([0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,8}(?:(?:\.\d{1,3}){3})?)")
_MAC = compiled(rb"(?:^|[^\w:-])([0-9A-Fa-f]{2}(?:(?::[0-9A-Fa-f]{2}){5}|(?:-[0-9A-Fa-f]{2}){5}))(?:$|[^\w:-])")
_RELEASE_BEFORE = compiled(rb"(?i)(?:(?:version|release|build|\bver|\bv)[\s:=\"']{0,3}|==|[\w)][/-])$")
_RELEASE_AFTER = compiled(rb"(?i)^(?:[-\w+~]|\.\w|/\d+\.|\s{1,2}(?:build|release|version)\b)")
_AROUND = 16


def find_addresses(text: bytes) -> Iterator[tuple[str, Span]]:
    """Yield the network addresses in `text`, except service addresses with a port, and version numbers."""
    if text.count(b".") > 2:
        for start, end in spans(_V4, text):
            if text[end : end + 1] == b":" and text[end + 1 : end + 2].isdigit():
                continue
            before, after = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
            stands = not _RELEASE_BEFORE.search(before) and not _RELEASE_AFTER.search(after)
            if stands and _is(text[start:end]):
                yield "ip_address", (start, end)
    if b"::" in text or text.count(b":") > 6:
        for start, end in spans(_V6, text):
            while text[end - 1 : end] == b":" and text[end - 2 : end - 1] != b":":
                end -= 1
            word = text[start:end]
            if b"::" not in word and word.count(b":") < 6:
                continue
            after = text[end : end + 2]
            alone = (
                not after[:1].isalnum()
                and after[:1] not in (b"_", b":")
                and not (after[:1] == b"." and after[1:].isdigit())
            )
            if alone and any(char in b"123456789abcdefABCDEF" for char in word) and _is(word):
                yield "ip_address", (start, end)
    if text.count(b":") > 4 or text.count(b"-") > 4:
        yield from _macs(text)


def _macs(text: bytes) -> Iterator[tuple[str, Span]]:
    for start, end in spans(_MAC, text):
        if len(set(text[start:end].upper()) - set(b":-")) > 1:
            yield "mac_address", (start, end)


def _is(word: bytes) -> bool:
    try:
        ipaddress.ip_address(word.decode())
    except ValueError:
        return False
    return True
