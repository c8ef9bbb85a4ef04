"""Screening: the write filter of the diode, applied to the bodies of one commit.

A screen represents the current state of a project: its releases, and the keys of their fingerprints.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from counterpoint.guard.field_detector import FieldFinding
from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.guard.judge import (
    IDS,
    Judgement,
    ReleasedFingerprints,
    judge,
    location,
    nothing_released,
    problems,
    value_of,
)
from counterpoint.guard.names import empty_fingerprint, redact_body_names, redact_name
from counterpoint.guard.policy import Policy
from counterpoint.proto.errors import ErrorCode, Permanent, Problem


@dataclass(frozen=True, slots=True)
class Screen:
    """The write filter of one project. Without fingerprints nothing is released."""

    fingerprints: Fingerprints | None = None
    released: frozenset[str] = frozenset()

    def judge(self, policy: Policy, body: Mapping[str, Any], fields: Iterable[str], label: int) -> Judgement:
        """Judge a body for a destination of this label. Released values pass."""
        return judge(policy, body, fields, label, self._passes)

    def name(self, name: str) -> str:
        """Return a name with its secrets redacted: see `counterpoint.guard.names`."""
        return redact_name(name, self._named, self._passes)

    def names(self, body: Mapping[str, Any], but: Iterable[str]) -> tuple[dict[str, Any], tuple[tuple[str, ...], ...]]:
        """Return a body with the secrets in its names redacted, and the paths that changed. The fields in `but` are
        texts."""
        return redact_body_names(body, but, self._named, self._passes)

    @property
    def _named(self) -> Callable[[str], str]:
        return self.fingerprints.of if self.fingerprints else empty_fingerprint

    @property
    def _passes(self) -> ReleasedFingerprints:
        """Whether persons have released a value."""
        if self.fingerprints is None or not self.released:
            return nothing_released
        fingerprints, released = self.fingerprints, self.released
        return lambda value: fingerprints.matches(value, released)

    def problems(self, body: Mapping[str, Any], judged: Judgement) -> tuple[Problem, ...]:
        """Return the problems of a refused body, each value once; none if it is not refused."""
        return problems(body, first_places(body, judged), self.fingerprints.of if self.fingerprints else None)

    def refuse_name(self, policy: Policy, field: str, name: str, label: int) -> None:
        """Raise `Permanent` `sensitive` for an identifier that contains a secret: it cannot be redacted."""
        body = {field: name}
        judged = self.judge(policy, body, (field,), label)
        if judged.findings:
            of = self.fingerprints.of if self.fingerprints else None
            raise Permanent(ErrorCode.SENSITIVE, problems(body, judged.findings, of))


def first_places(body: Mapping[str, Any], judged: Judgement) -> tuple[FieldFinding, ...]:
    """Return the findings for which a body is refused, each value at its first place."""
    first: dict[str, FieldFinding] = {}
    for found in judged.refused:
        first.setdefault(value_of(body, found), found)
    return tuple(first.values())


PLAIN = Screen()
"""Screen of records that memory writes itself, without the releases of a project."""


class Screening:
    """Accumulated result of screening the bodies of one commit, one after the other."""

    def __init__(self, policy: Policy, screen: Screen) -> None:
        self._policy = policy
        self._screen = screen
        self._refused: dict[str, Problem] = {}
        self.redacted: list[list[str]] = []
        """Redactions: body, path and kind of each."""

    def kept(self, where: str, body: dict[str, Any], fields: tuple[str, ...], label: int) -> dict[str, Any]:
        """Return a body as it may be stored; `fields` are texts, all others names. `settle` decides whether the commit
        may be applied."""
        if fields:
            judged = self._screen.judge(self._policy, body, fields, label)
            if judged.verdict != "allow":
                for problem in self._screen.problems(body, judged):
                    self._refused.setdefault(problem.problem, problem)
                self.redacted += ([where, location(found), found.finding.type] for found in judged.findings)
                body = judged.body
        named, changed = self._screen.names(body, fields)
        for path in changed:
            if path[-1] in IDS:
                self._refuse(path[-1])
            self.redacted.append([where, ".".join(map(self._screen.name, path)), "name"])
        return named

    def id(self, where: str, record_id: str) -> str:
        """Return a record's id; one with a secret is refused, because redacted it would be another record's."""
        if self._screen.name(record_id) != record_id:
            self._refuse(where)
        return record_id

    def _refuse(self, where: str) -> None:
        problem = Problem(
            field=where,
            problem="contains what looks like a secret, and cannot be redacted because it identifies something",
        )
        self._refused.setdefault(where, problem)

    def settle(self) -> None:
        """Raise `Permanent` `sensitive` with the first place of every refused value, if there is one."""
        if self._refused:
            raise Permanent(ErrorCode.SENSITIVE, tuple(self._refused.values()))
