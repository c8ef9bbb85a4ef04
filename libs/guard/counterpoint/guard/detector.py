"""Detection of sensitive data in a text, and its redaction.

A finding has kind and span, never the value. Text is normalised before it is searched (compatibility forms folded,
invisible format characters dropped, one level of base64 decoded); spans are those of the original text.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from counterpoint.guard.automata import compiled
from counterpoint.guard.cards import find_cards
from counterpoint.guard.connections import find_passwords, is_form
from counterpoint.guard.contacts import find_contacts
from counterpoint.guard.cues import is_confirmed
from counterpoint.guard.finance import find_accounts
from counterpoint.guard.identities import find_identities
from counterpoint.guard.keys import find_keys
from counterpoint.guard.kinds import NUMBERS, Class, Span, class_of
from counterpoint.guard.network import find_addresses
from counterpoint.guard.normalisation import decode_base64, long_words, normalise
from counterpoint.guard.patterns import PATTERNS, find_assignments
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

FINDINGS_MAX = 16_384
"""Number of texts whose findings are cached."""
ID = (
    r"(?:(?:counterpoint|job|dataset|data|request|tasks?|chunks|doc)[:/-]){0,4}"
    r"(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}(?:[0-9a-f]{32})?)(?:-\d{5})?"
)
"""UUIDs, hashes, and ids that the services make of these, which never contain a finding and need no scan."""
_ID = re.compile(ID)
TEXT_LIMIT_CHARS = 8 * 1024 * 1024
_PASSES_MAX = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """Sensitive data of kind `type` at `text[start:end]` of the scanned text.

    `confirmed`: its form or a nearby word confirms the kind. Else a number may be a counter, a password a form field.
    """

    type: str
    start: int
    end: int
    confirmed: bool = field(default=True, compare=False)

    @property
    def kind(self) -> Class:
        """The class by which the policy judges it."""
        return class_of(self.type)


def scan(text: str) -> tuple[Finding, ...]:
    """Return the findings in `text`, in order and without overlaps. Findings are cached by the text's hash.

    Raises `Permanent` `too_large` for a text above `TEXT_LIMIT_CHARS`.
    """
    if len(text) > TEXT_LIMIT_CHARS:
        problem = f"{len(text)} characters, more than the limit of {TEXT_LIMIT_CHARS} for scanning"
        raise Permanent(ErrorCode.TOO_LARGE, (Problem(field="text", problem=problem),))
    return () if _ID.fullmatch(text) else _findings.of(text)


def redact(text: str, findings: Iterable[Finding]) -> str:
    """Return `text` with `[redacted:<type>]` in place of each finding of its scan."""
    parts: list[str] = []
    at = 0
    for finding in findings:
        parts += text[at : finding.start], tag(finding)
        at = finding.end
    return "".join([*parts, text[at:]])


def tag(finding: Finding) -> str:
    """Return the text that replaces a finding."""
    return f"[redacted:{finding.type}]"


class _FindingsCache:
    """The findings of recent texts by the texts' hashes, at most `size`; thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._cached: dict[bytes, tuple[Finding, ...]] = {}

    def of(self, text: str) -> tuple[Finding, ...]:
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).digest()
        findings = self._cached.get(key)
        if findings is None:
            findings = _detect(text)
            # Begun anew when full: an order of use would take longer to keep than a search of the recent texts.
            if len(self._cached) >= self._size:
                self._cached.clear()
            self._cached[key] = findings
        return findings


_findings = _FindingsCache(FINDINGS_MAX)


def _detect(text: str) -> tuple[Finding, ...]:
    """Return all findings, including a secret adjacent to another one, which shows only when that is redacted."""
    findings = _search(text)
    for _ in range(_PASSES_MAX):
        if not findings:
            return ()
        hidden = _search(redact(text, findings))
        if not hidden:
            return tuple(findings)
        findings = _merged([*findings, *_original_findings(hidden, _spans_after_redaction(text, findings))])
    return (Finding(findings[0].type, 0, len(text)),)


def _search(text: str) -> list[Finding]:
    if _TAGGED in text:
        text = _FINGERPRINTED.sub(lambda tag: f"{tag[1]}_{'x' * len(tag[2])}]", text)
    normalised, spans = normalise(text)
    findings = (
        Finding(kind, start, end, _is_certain(kind, normalised, start, end))
        for kind, (start, end) in _find_all(normalised)
    )
    return _merged(findings if spans is None else _original_findings(findings, spans))


def _is_certain(kind: str, text: str, start: int, end: int) -> bool:
    """Whether a number is confirmed, or a word as a password is not a form field."""
    return not is_form(text, start, end) if kind == "uri_word" else is_confirmed(kind, text, start, end)


def _original_findings(findings: Iterable[Finding], spans: Sequence[Span]) -> Iterator[Finding]:
    for finding in findings:
        yield Finding(finding.type, spans[finding.start][0], spans[finding.end - 1][1], finding.confirmed)


def _spans_after_redaction(text: str, findings: Iterable[Finding]) -> list[Span]:
    spans: list[Span] = []
    at = 0
    for finding in findings:
        spans += ((index, index + 1) for index in range(at, finding.start))
        spans += [(finding.start, finding.end)] * len(tag(finding))
        at = finding.end
    spans += ((index, index + 1) for index in range(at, len(text)))
    return spans


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in order; overlapping ones are merged under the kind of the first, the most certain."""
    merged: list[tuple[int, Finding]] = []
    for rank, finding in sorted(enumerate(findings), key=lambda ranked: (ranked[1].start, ranked[0])):
        if merged and finding.start < merged[-1][1].end:
            first_rank, first = merged[-1]
            kind = first.type if first_rank < rank else finding.type
            end = max(first.end, finding.end)
            merged[-1] = min(first_rank, rank), Finding(kind, first.start, end, first.confirmed or finding.confirmed)
        else:
            merged.append((rank, finding))
    return [finding for _, finding in merged]


def _find_all(text: str) -> Iterator[tuple[str, Span]]:
    yield from _find(text)
    for start, end in long_words(text):
        decoded = decode_base64(text[start:end])
        if decoded is not None:
            for kind, _ in _find(normalise(decoded)[0]):
                yield kind, (start, end)


_TAGGED = "[redacted:"
_FINGERPRINTED = re.compile(r"(\[redacted:[a-z0-9_]+):([0-9a-f]{16})\]")
"""A tag with a fingerprint, whose random digits are masked before the search."""
_UUID = compiled(rb"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


def _find(text: str) -> Iterator[tuple[str, Span]]:
    """Yield the findings, except numbers within a UUID, which match by chance."""
    findings = list(_find_any(text))
    numbers = [finding for finding in findings if class_of(finding[0]) in NUMBERS]
    uuids = [match.span() for match in _UUID.finditer(text.encode("ascii", "replace"))] if numbers else []
    for kind, (start, end) in findings:
        if class_of(kind) not in NUMBERS or not any(first <= start and end <= last for first, last in uuids):
            yield kind, (start, end)


def _find_any(text: str) -> Iterator[tuple[str, Span]]:
    for pattern in PATTERNS:
        for span in pattern.find(text):
            yield pattern.kind, span
    yield from find_passwords(text)
    signs = text.encode("ascii", "replace")
    findings = list(find_keys(signs))
    yield from (finding for finding in findings if class_of(finding[0]) == "secret")
    for span in find_cards(signs):
        yield "card", span
    yield from find_accounts(signs)
    for span in find_assignments(text):
        yield "assignment", span
    yield from (finding for finding in findings if class_of(finding[0]) != "secret")
    for find in (find_identities, find_contacts, find_addresses):
        yield from find(signs)
