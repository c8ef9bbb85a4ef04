"""Contact data of persons: e-mail addresses and phone numbers."""

from collections.abc import Iterator

from counterpoint.guard.automata import compiled, spans
from counterpoint.guard.kinds import Span
from counterpoint.guard.mailboxes import is_nobody, is_team

_EMAIL = compiled(
    rb"(?:^|[^\w.%+/@=~!#$&*?^-]|=)([A-Za-z0-9_](?:[\w.%+'-]{0,62}[\w+-])?@"
    rb"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}(?:xn--[A-Za-z0-9-]{2,59}|[A-Za-z]{2,24}))"
)
_USERINFO = compiled(rb"://(?:[^\s/@:\"'<>]*:)?$")
"""Text before the user or password of a connection string."""
_USERINFO_CHARS = 160
_LINE_CHARS = 200
_NO_PLACE = frozenset(
    [
        *(b"png", b"jpg", b"jpeg", b"gif", b"svg", b"webp", b"js", b"ts", b"css", b"json", b"html", b"whl", b"gz"),
        *(b"service", b"socket", b"timer", b"target", b"mount", b"slice", b"scope", b"device", b"path", b"swap"),
    ]
)
"""Suffixes of files and systemd units, whose names may contain an at sign."""
_LOGINS = frozenset([b"git", b"hg", b"svn", b"root", b"ubuntu", b"ec2-user", b"postgres"])
"""Machine accounts, which receive no mail."""

_INTERNATIONAL = compiled(rb"(?:^|[^\w+])(\+[1-9]\d{0,3}(?:[ .-]?\(?\d{1,5}\)?){1,7})")
_AMERICAN = compiled(
    rb"(?:^|[^\w.,()+/=-])((?:1[ .-])?(?:\([2-9]\d{2}\) ?[2-9]\d{2}[-. ]|[2-9]\d{2}-[2-9]\d{2}-"
    rb"|[2-9]\d{2}\.[2-9]\d{2}\.)\d{4}(?: ?(?:x|ext\.?) ?\d{1,6})?)"
)
_GROUPED = compiled(
    rb"(?:^|[^\w.,+/-])(\+?(?:\(0?\d{1,5}\)[ .-]?)?\d{1,7}(?:[ .-]\(?\d{1,7}\)?){1,6}(?: ?x ?\d{1,6})?|0\d{8,11}"
    rb"|[1-9]\d{9,10})"
)
_SPOKEN = compiled(
    rb"(?i)\b(?:contacts?|contacted|reach(?:ed)?(?: \w+){0,3} (?:at|on)|answer(?:s|ed|ing)?(?: \w+){0,2} (?:at|on)"
    rb"|(?:call|text|ring|dial)(?:s|ed|l?ing)?(?: [\w-]+){0,3} (?:at|on|to)"
    rb"|messages? (?:to|from)|numbers? (?:is|to|for|at))\b"
)
_CERTAIN = compiled(
    rb"(?i)\b(?:(?:tele|cell|home|work)?[ _-]?phones?|tel|mobile|cell|fax|pager|sms|whatsapp|hotline"
    rb"|call (?:me|us|him|her|them))\b"
)
_SAID_AFTER = compiled(rb"(?i)[\s,-]{0,3}\b(?:office|fax|mobile|cell|phone|pager)\b")
_DATE = compiled(
    rb"^(?:(?:19|20)\d{2}[-./ ]\d{1,2}[-./ ]\d{1,2}|\d{1,2}[-./ ]\d{1,2}[-./ ](?:19|20)\d{2})(?:\D|$)"
    rb"|^\d{1,3}(?:\.\d{1,3}){3}$|^\d+\.\d+$|^(?:19|20)\d{2}-(?:19|20)\d{2}$"
)
_BEFORE, _LONGEST = 40, 24
_SIGNS = b" .-()+xX"


def find_contacts(text: bytes) -> Iterator[tuple[str, Span]]:
    """Yield the e-mail addresses and phone numbers in `text`.

    A phone number needs a valid country prefix and form, the North American format, or a nearby word.
    """
    if b"@" in text:
        for span in spans(_EMAIL, text):
            if _is_email(text, *span):
                yield "email", span
    if b"+" in text:
        for start, end in spans(_INTERNATIONAL, text):
            if not _goes_on(text, end) and _is_international(text[start:end]):
                yield "phone", (start, end)
    for start, end in spans(_AMERICAN, text):
        if not _goes_on(text, end):
            yield "phone", (start, end)
    yield from _spoken_of(text)


def _is_email(text: bytes, start: int, end: int) -> bool:
    following = text[end : end + 1]
    name, _, host = text[start:end].partition(b"@")
    ending = host.rpartition(b".")[2].lower()
    goes_on = following.isalnum() or following in (b"_", b"@", b"-")
    if goes_on or ending in _NO_PLACE or name.lower() in _LOGINS or b".." in name:
        return False
    if is_nobody(name.decode("ascii").lower(), host.decode("ascii").lower()):
        return False
    if is_team(name.decode("ascii").lower(), _line(text, start, end)):
        return False
    return _USERINFO.search(text[max(0, start - _USERINFO_CHARS) : start]) is None


def _line(text: bytes, start: int, end: int) -> str:
    """Return the line of a span, as far as `_LINE_CHARS` around it."""
    first = text.rfind(b"\n", max(0, start - _LINE_CHARS), start) + 1 or max(0, start - _LINE_CHARS)
    last = text.find(b"\n", end, end + _LINE_CHARS)
    return text[first : last if last >= 0 else end + _LINE_CHARS].decode(errors="replace")


def _is_international(number: bytes) -> bool:
    import phonenumbers

    digits = number.replace(b"(0)", b"")
    if sum(chr(char).isdigit() for char in digits) < 8:
        return False
    try:
        return phonenumbers.is_possible_number(phonenumbers.parse(digits.decode()))
    except phonenumbers.NumberParseException:
        return False


def _spoken_of(text: bytes) -> Iterator[tuple[str, Span]]:
    """Yield numbers after a word for a phone in the same line, or directly before one."""
    for words, sure in ((_CERTAIN, True), (_SPOKEN, False)):
        for word in words.finditer(text):
            start = word.end()
            line = text.find(b"\n", start, start + _BEFORE + _LONGEST)
            yield from _numbers(text, start, line if line >= 0 else start + _BEFORE + _LONGEST, sure)
    for word in _SAID_AFTER.finditer(text):
        cue = word.start()
        line = text.rfind(b"\n", max(0, cue - _LONGEST), cue)
        for kind, span in _numbers(text, line if line >= 0 else max(0, cue - _LONGEST), cue, True):
            if span[1] == cue:
                yield kind, span


def _numbers(text: bytes, start: int, end: int, sure: bool) -> Iterator[tuple[str, Span]]:
    """Yield possible phone numbers in a span; unless `sure`, only grouped ones."""
    match = _GROUPED.search(text, start, end)
    while match is not None:
        number = match.group(1)
        digits = len(number.translate(None, _SIGNS))
        grouped = len(number) > digits
        span = match.span(1)
        if 8 <= digits <= 15 and (sure or grouped) and not _goes_on(text, span[1]) and not _DATE.search(number):
            yield "phone", span
        match = _GROUPED.search(text, span[1], end)


def _goes_on(text: bytes, end: int) -> bool:
    """Whether the number continues beyond its span."""
    after = text[end : end + 2]
    return (
        after[:1].isalnum() or after[:1] in (b"_", b":", b"/") or (after[:1] in b".,-+" and after[1:].isdigit())
    ) and after != b""
