"""Read sets: the items that each delivery has read, and the provenance of each message."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cachetools import FIFOCache, LRUCache

from counterpoint.memory.record.stamps import VOUCHED, Provenance
from counterpoint.proto.memory import Ref

Key = tuple[str, str, int, int]
"""Caller, inbound message id, fence, run of the handler."""

_FENCES = 10_000
"""Number of messages whose newest delivery is kept in RAM; the record has it for every applied one."""

COMMITS_USED = "commits"
"""Store, in a read set, of the commit whose message brought a result."""
CANDIDATE = "candidate"
"""Role of a citation that the result is not derived from."""


@dataclass(slots=True)
class _OpenReadSet:
    label: int = 0
    integrity: int = VOUCHED
    refs: dict[Ref, float | None] = field(default_factory=dict)
    shared: set[Ref] = field(default_factory=set)
    cited: set[Ref] = field(default_factory=set)
    answers: list[tuple["ReadAnswer", ...]] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return len(self.answers)

    @property
    def items(self) -> int:
        """Number of items in the answers, each as often as it was read."""
        return sum(len(answer.items) for request in self.answers for answer in request)


@dataclass(frozen=True, slots=True)
class ReadItem:
    """One item as it was read, and what its body cites in turn; `shared` when it is of the shared project."""

    ref: Ref
    label: int
    integrity: int
    score: float | None = None
    cites: tuple[Ref, ...] = ()
    shared: bool = False
    scores: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """An answer without its items. It is `complete` if the items are records, and everything in it besides."""

    tier: str
    plan: str
    partial: bool = False
    next_cursor: int | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """One answer as it was read, and the SHA-256 of its query."""

    query: bytes
    outline: Outline
    items: Sequence[ReadItem]


@dataclass(frozen=True, slots=True)
class ReadSet:
    """Read set of a delivery: its provenance, the score of each item, the items of the shared project, the citations
    of these items, the sources named without a message (`named`), the reads of `earlier` runs and deliveries, and the
    `answers` of each request of this run."""

    provenance: Provenance = field(default_factory=Provenance)
    scores: Mapping[Ref, float | None] = field(default_factory=dict)
    cited: frozenset[Ref] = frozenset()
    shared: frozenset[Ref] = frozenset()
    named: frozenset[Ref] = frozenset()
    earlier: frozenset[Ref] = frozenset()
    answers: tuple[tuple[ReadAnswer, ...], ...] = ()


def cites(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the names in a record or message: its `sources` and the citations of its findings, candidates too."""
    findings, sources = body.get("findings") or {}, body.get("sources") or ()
    if not findings and not sources:
        return ()
    named = [*sources, *(findings.get("citations") or () if isinstance(findings, dict) else ())]
    return tuple(each for each in named if isinstance(each, dict) and {"store", "id", "version"} <= each.keys())


def sources_of(body: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], ...]:
    """Return the `sources` that a record names itself, none if it names none or invalid ones."""
    named = (body or {}).get("sources")
    if not isinstance(named, list | tuple):
        return ()
    return tuple(
        each
        for each in named
        if isinstance(each, dict)
        and isinstance(each.get("store"), str)
        and isinstance(each.get("id"), str)
        and isinstance(each.get("version"), int)
    )


class ReadSetLost(LookupError):
    """The read set of this delivery is no longer in RAM."""


class ReadSets:
    """Read sets of open deliveries, in this process alone; with more than `limit` items in all, the least recently
    used set is evicted. No cache of cachetools does that: a set grows while it is in the cache.

    Each set counts as one item more than its answers have. The label and the integrity of the items that a caller has
    read for a message apply to all its runs and deliveries.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items = 0
        self._sets: OrderedDict[Key, _OpenReadSet] = OrderedDict()
        self._of_message: dict[str, set[Key]] = {}
        self._stamps: LRUCache[tuple[str, str], tuple[int, int]] = LRUCache(_FENCES)
        self._fences: LRUCache[tuple[str, str], int] = LRUCache(_FENCES)

    def fence(self, caller: str, message_id: str, fence: int) -> bool:
        """Whether this delivery is the newest seen of its message; remember it."""
        key = (caller, message_id)
        known = self._fences.get(key, 0)
        if fence < known:
            return False
        self._fences[key] = fence
        return True

    def note(self, key: Key, answers: Sequence[ReadAnswer], integrity: int = VOUCHED, label: int = 0) -> None:
        """Add the answers to one more request of this delivery; `integrity` and `label` are those of anything else it
        was given."""
        known = self._sets.get(key)
        if known is None:
            known = self._sets[key] = _OpenReadSet()
            self._of_message.setdefault(key[1], set()).add(key)
            self._items += 1
        self._sets.move_to_end(key)
        known.answers.append(tuple(answers))
        known.integrity = min(known.integrity, integrity)
        known.label = max(known.label, label)
        for item in (item for answer in answers for item in answer.items):
            known.label = max(known.label, item.label)
            known.integrity = min(known.integrity, item.integrity)
            known.refs[item.ref] = item.score
            known.cited.update(item.cites)
            if item.shared:
                known.shared.add(item.ref)
        label, lowest = self._stamps.get(key[:2], (0, VOUCHED))
        self._stamps[key[:2]] = max(label, known.label), min(lowest, known.integrity)
        self._items += sum(len(answer.items) for answer in answers)
        while self._items > self._limit and len(self._sets) > 1:
            self.drop(next(iter(self._sets)))

    def finish(self, caller: str, message_id: str) -> None:
        """Delete the read sets of a caller for a message."""
        for key in [key for key in self._of_message.get(message_id, ()) if key[0] == caller]:
            self.drop(key)

    def drop(self, key: Key) -> None:
        """Delete the read set of one run, if it is known."""
        known = self._sets.pop(key, None)
        if known is not None:
            self._items -= 1 + known.items
            others = self._of_message[key[1]]
            others.discard(key)
            if not others:
                del self._of_message[key[1]]

    def provenance_of(self, message_id: str) -> Provenance:
        """Return the provenance of all known deliveries of a message, of any caller."""
        known = [self._sets[key] for key in self._of_message.get(message_id, ())]
        return Provenance(
            max((each.label for each in known), default=0),
            min((each.integrity for each in known), default=VOUCHED),
            frozenset(ref for each in known for ref in each.refs),
        )

    def of(self, key: Key, requests: int) -> ReadSet:
        """Return the read set of a delivery. Raises `ReadSetLost` unless exactly `requests` answers are remembered."""
        known = self._sets.get(key)
        if (known.requests if known else 0) != requests:
            raise ReadSetLost
        return self.so_far(key, requests)

    def so_far(self, key: Key, requests: int) -> ReadSet:
        """Return the read set of a delivery, which may include answers that have not arrived yet. Raises `ReadSetLost`
        if fewer than `requests` answers are remembered."""
        known = self._sets.get(key) or _OpenReadSet()
        if known.requests < requests:
            raise ReadSetLost
        label, integrity = self._stamps.get(key[:2], (0, VOUCHED))
        others = (each for each in self._of_message.get(key[1], ()) if each[0] == key[0] and each != key)
        return ReadSet(
            Provenance(label, integrity, frozenset(known.refs)),
            known.refs,
            frozenset(known.cited),
            frozenset(known.shared),
            earlier=frozenset(ref for each in others for ref in self._sets[each].refs) - known.refs.keys(),
            answers=tuple(known.answers),
        )


class OriginCache:
    """The provenance of messages sent recently, so that a commit need not look up the message that caused it.

    At most `limit` items in all, each message among them; the oldest message is evicted first.
    """

    def __init__(self, limit: int) -> None:
        self._known: FIFOCache[str, Provenance] = FIFOCache(limit, getsizeof=lambda each: 1 + len(each.refs))

    def remember(self, message_id: str, provenance: Provenance) -> None:
        """Add a message that was sent."""
        if message_id not in self._known and 1 + len(provenance.refs) <= self._known.maxsize:
            self._known[message_id] = provenance

    def get(self, message_id: str) -> Provenance | None:
        """Return the provenance of a message, None if it was not sent recently."""
        return self._known.get(message_id)
