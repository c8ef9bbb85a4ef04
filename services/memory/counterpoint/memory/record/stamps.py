"""Stamps of a record or message: its label, its integrity, and the items that it is derived from."""

from dataclasses import dataclass

from counterpoint.proto.memory import Ref

VOUCHED, DERIVED, UNTRUSTED = 2, 1, 0
"""Integrity: vouched for by a person or an operated system; derived by an agent; untrusted, from outside."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Provenance of a record or message: the highest label, the lowest integrity and all items of what it is derived
    from; of a message also its type, the commit that sent it, its principal, and whether it brings the `result`
    of that commit."""

    label: int = 0
    integrity: int = VOUCHED
    refs: frozenset[Ref] = frozenset()
    commit: str | None = None
    result: bool = False
    principal: str | None = None
    type: str | None = None

    def with_(self, other: "Provenance") -> "Provenance":
        """Return the provenance of a value derived from both."""
        return Provenance(
            max(self.label, other.label),
            min(self.integrity, other.integrity),
            self.refs | other.refs,
            self.commit or other.commit,
            self.result or other.result,
            self.principal or other.principal,
            self.type or other.type,
        )
