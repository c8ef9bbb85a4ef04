"""The judge: what the policy makes of a body with something sensitive in it, and what may be kept of the body. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from counterpoint.guard.detector import FieldFinding, normal, redact, redact_fields, scan, scan_fields
from counterpoint.guard.kinds import named
from counterpoint.guard.policy import VERDICTS, Policy, Verdict, policy
from counterpoint.guard.seams import across
from counterpoint.proto.errors import Problem

STRICTEST = 0
"""The label as a number that a text is judged by which has none: the one that everybody may read."""

IDS = frozenset({"task_id", "session_id", "action_id", "decision_id", "attempt_id"})
"""What records and messages are known by: redacted in part it would name nothing any more, so it is blocked."""

Released = Callable[[str], bool]
"""Whether a person has released this value."""


def nothing(value: str) -> bool:
    """No value is released."""
    return False


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on a body: the highest of those on its findings, which are all that are not allowed.

    `body` is what may be kept of it where the verdict lets it be kept: redacted is what the policy redacts or blocks,
    and left is what it puts under quarantine.
    """

    verdict: Verdict
    findings: tuple[FieldFinding, ...]
    verdicts: tuple[Verdict, ...]
    body: dict[str, Any]

    @property
    def refused(self) -> tuple[FieldFinding, ...]:
        """The findings for which the body is refused: the highest verdict's, when that is block or quarantine."""
        if VERDICTS.index(self.verdict) < VERDICTS.index("quarantine"):
            return ()
        return tuple(
            found
            for found, verdict in zip(self.findings, self.verdicts, strict=True)
            if verdict in ("block", "quarantine")
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of what was found, each once, in order."""
        return tuple(dict.fromkeys(found.finding.type for found in self.findings))


def judge(
    rules: Policy, body: Mapping[str, Any], fields: Iterable[str], label: int, released: Released = nothing
) -> Judged:
    """What becomes of `body`, of which `fields` are looked through, where it goes to something of this label.

    Raises `Permanent` `too_large` for what is too long to be looked through.
    """
    fields = tuple(fields)
    within = scan_fields(body, fields)
    found = [
        (finding, rules.verdict(finding.finding.kind, label, finding.finding.named))
        for finding in (*within, *across(body, fields, within))
        if released is nothing or not released(value_of(body, finding))
    ]
    counted = [(finding, verdict) for finding, verdict in found if verdict != "allow"]
    if not counted:
        return Judged("allow", (), (), dict(body))
    counted = [
        (finding, "block" if verdict == "redact" and finding.path[-1] in IDS else verdict)
        for finding, verdict in counted
    ]
    gone = [finding for finding, verdict in counted if verdict in ("redact", "block")]
    return Judged(
        max((verdict for _, verdict in counted), key=VERDICTS.index),
        tuple(finding for finding, _ in counted),
        tuple(verdict for _, verdict in counted),
        redact_fields(body, gone) if gone else dict(body),
    )


def judge_text(text: str, label: int) -> Judged:
    """What becomes of a text by this build's policy; it is the field `text` of the body."""
    return judge(policy(), {"text": text}, ("text",), label)


def cleaned(rules: Policy, body: Mapping[str, Any], fields: Iterable[str], label: int) -> dict[str, Any]:
    """A copy of `body` without all that is not allowed there: for what nobody could put right when it is refused."""
    judged = judge(rules, body, fields, label)
    return redact_fields(body, judged.findings)


def cleaned_text(rules: Policy, text: str, label: int) -> str:
    """`text` without all that is not allowed where the label is `label`."""
    return str(cleaned(rules, {"text": text}, ("text",), label)["text"])


def problems(
    body: Mapping[str, Any], findings: Iterable[FieldFinding], fingerprint: Callable[[str], str] | None = None
) -> tuple[Problem, ...]:
    """What to tell of findings: where, of which kind, and the value's fingerprint. Never the value."""
    return tuple(
        Problem(
            field=place(found),
            problem=f"holds what looks like {named(found.finding.type)}"
            + (f" (fingerprint {fingerprint(value_of(body, found))})" if fingerprint else ""),
        )
        for found in findings
    )


def place(found: FieldFinding) -> str:
    """Where a finding is: the keys and indexes that lead to it, without what is sensitive in them."""
    return ".".join(redact(part, scan(part)) if isinstance(part, str) else str(part) for part in found.path)


def value_of(body: Mapping[str, Any], found: FieldFinding) -> str:
    """The value of a finding in `body`, normalised as it was for the search."""
    leaf: Any = body
    if found.in_key:
        leaf = found.path[-1]
    else:
        for part in found.path:
            leaf = leaf[part]
    return normal(str(leaf)[found.finding.start : found.finding.end])
