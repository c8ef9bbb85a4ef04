"""The policy's verdict on a body with sensitive data, and the redacted body. Pure functions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from counterpoint.guard.detector import redact, scan
from counterpoint.guard.field_detector import FieldFinding, redact_fields, scan_fields
from counterpoint.guard.kinds import kind_name
from counterpoint.guard.normalisation import normal
from counterpoint.guard.policy import VERDICTS, Policy, Verdict
from counterpoint.guard.split_secrets import find_across_fields
from counterpoint.proto.errors import Problem

IDS = frozenset({"task_id", "session_id", "action_id", "decision_id", "attempt_id"})
"""Fields that identify records and messages: findings in them block, since a redacted id identifies nothing."""

ReleasedFingerprints = Callable[[str], bool]
"""A predicate: whether a person has released a value."""


def nothing_released(value: str) -> bool:
    """Return False: no value is released."""
    return False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a body: the highest of the verdicts on its findings that are not allowed.

    In `body`, findings that the policy redacts or blocks are redacted; quarantined ones are kept.
    """

    verdict: Verdict
    findings: tuple[FieldFinding, ...]
    verdicts: tuple[Verdict, ...]
    body: dict[str, Any]

    @property
    def refused(self) -> tuple[FieldFinding, ...]:
        """The findings with the highest verdict, when that is block or quarantine."""
        if VERDICTS.index(self.verdict) < VERDICTS.index("quarantine"):
            return ()
        return tuple(
            finding
            for finding, verdict in zip(self.findings, self.verdicts, strict=True)
            if verdict in ("block", "quarantine")
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The distinct kinds of the findings, in order."""
        return tuple(dict.fromkeys(finding.finding.type for finding in self.findings))


def judge(
    rules: Policy,
    body: Mapping[str, Any],
    fields: Iterable[str],
    label: int,
    released: ReleasedFingerprints = nothing_released,
) -> Judgement:
    """Judge the free-text `fields` of `body` for a destination of this label level.

    Raises `Permanent` `too_large` for a text above the scanning limit.
    """
    fields = tuple(fields)
    in_one_field = scan_fields(body, fields)
    judged = [
        (finding, rules.verdict(finding.finding.kind, label, finding.finding.confirmed))
        for finding in (*in_one_field, *find_across_fields(body, fields, in_one_field))
        if released is nothing_released or not released(value_of(body, finding))
    ]
    disallowed = [(finding, verdict) for finding, verdict in judged if verdict != "allow"]
    if not disallowed:
        return Judgement("allow", (), (), dict(body))
    disallowed = [
        (finding, "block" if verdict == "redact" and finding.path[-1] in IDS else verdict)
        for finding, verdict in disallowed
    ]
    to_redact = [finding for finding, verdict in disallowed if verdict in ("redact", "block")]
    return Judgement(
        max((verdict for _, verdict in disallowed), key=VERDICTS.index),
        tuple(finding for finding, _ in disallowed),
        tuple(verdict for _, verdict in disallowed),
        redact_fields(body, to_redact) if to_redact else dict(body),
    )


def redacted_body(rules: Policy, body: Mapping[str, Any], fields: Iterable[str], label: int) -> dict[str, Any]:
    """Return a copy of `body` with all disallowed findings redacted, for bodies that cannot be refused."""
    return redact_fields(body, judge(rules, body, fields, label).findings)


def redacted_text(rules: Policy, text: str, label: int) -> str:
    """Return `text` with all findings redacted that are not allowed at this label level."""
    return str(redacted_body(rules, {"text": text}, ("text",), label)["text"])


def problems(
    body: Mapping[str, Any], findings: Iterable[FieldFinding], fingerprint: Callable[[str], str] | None = None
) -> tuple[Problem, ...]:
    """Return problems with location, kind and fingerprint of each finding, never its value."""
    return tuple(
        Problem(
            field=location(finding),
            problem=f"contains what looks like {kind_name(finding.finding.type)}"
            + (f" (fingerprint {fingerprint(value_of(body, finding))})" if fingerprint else ""),
        )
        for finding in findings
    )


def location(finding: FieldFinding) -> str:
    """Return the path of a finding, with sensitive data in its keys redacted."""
    return ".".join(redact(part, scan(part)) if isinstance(part, str) else str(part) for part in finding.path)


def value_of(body: Mapping[str, Any], finding: FieldFinding) -> str:
    """Return the value of a finding in `body`, normalised as for the search."""
    leaf: Any = body
    if finding.in_key:
        leaf = finding.path[-1]
    else:
        for part in finding.path:
            leaf = leaf[part]
    return normal(str(leaf)[finding.finding.start : finding.finding.end])
