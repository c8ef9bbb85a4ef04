"""Comparison of the record's rows with the leaves, one table after the other."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Protocol

from counterpoint.memory.audit.standing import ExpectedRows, LeafWrite
from counterpoint.memory.record.answers import answers_text
from counterpoint.memory.record.canonical import canonical
from counterpoint.memory.record.message_bodies import whole_body

_CANCELLED = ["cancelled", True, 0, "cancelled", {"status": "stale"}]
"""Step, and columns, of the inbox row of a cancelled timer."""


class LeafContents(Protocol):
    """Contents of the leaves; `unknown` are commits whose leaves were erased, `gone` the last erased version of each
    record according to an erasure."""

    written: dict[tuple[str, str, int], LeafWrite]
    messages: dict[str, list[Any]]
    unknown: dict[int, str]
    gone: dict[tuple[str, str], int]
    standing: ExpectedRows


class RowVerifier:
    """Compares records, their history and messages with the leaves of their commits."""

    def __init__(self, leaves: LeafContents) -> None:
        self._leaves = leaves
        self.found = 0
        self._timers: dict[str, list[str]] = {}
        """Recipients of cancelled timers, by message."""
        self.broken: list[str] = []

    def written(self, rows: Iterable[Any]) -> None:
        """Verify some records, each once."""
        unknown = set(self._leaves.unknown.values())
        for store, record_id, version, commit, body, erased, hashed, stamps, place, superseded in rows:
            self.found += 1
            text = "" if body is None else canonical(json.loads(body))
            committed = self._leaves.written.pop((store, record_id, version), None)
            gone = committed is None or version < self._leaves.gone.get((store, record_id), 0)
            if gone and erased and body is None and str(commit) in unknown:
                continue
            name = f"{store}/{record_id} at version {version}"
            sha256 = hashlib.sha256(text.encode()).hexdigest()
            if committed is None or committed.sha256 != sha256 or hashed not in (sha256, None):
                self.broken.append(f"{name} differs from what was committed")
            elif committed.stamps is not None and committed.stamps != json.loads(stamps):
                self.broken.append(f"{name} has other stamps than were committed")
            elif committed.commit not in (str(commit), None):
                self.broken.append(f"{name} names another commit than the one that wrote it")
            elif committed.place not in (json.loads(place), None):
                self.broken.append(f"{name} is stored with a wrong position or time")
            elif erased and (store, record_id) not in self._leaves.gone:
                self.broken.append(f"{name} is marked as erased, but no erasure accounts for it")
            if not self._leaves.standing.superseded(store, record_id, version, superseded):
                self.broken.append(f"{name} has a wrong position of its successor")

    def gone(self) -> None:
        """Report records that are missing, after all records."""
        for store, record_id, version in self._leaves.written:
            self.broken.append(f"{store}/{record_id} at version {version} is missing")

    def sent(self, rows: Iterable[Any]) -> None:
        """Verify some messages."""
        standing, erased = self._leaves.standing, set(self._leaves.unknown.values())
        whole = not erased and not standing.older
        for row in rows:
            message_id, kind, _, stamps, commit, columns, version, *_ = row
            committed = self._leaves.messages.get(str(message_id))
            if committed is None:
                if commit not in erased and commit not in standing.older:
                    self.broken.append(f"message {message_id} belongs to no commit")
                continue
            now = [kind, hashlib.sha256(whole_body(row).encode()).hexdigest(), json.loads(stamps)]
            if now[2][5] is not None and ((json.loads(columns)[1], now[2][5]) in standing.cancelled or not whole):
                self._timers[str(message_id)] = now[2][2]
            if committed[:2] != now[:2] or (len(committed) > 2 and committed[2][:6] != now[2]):
                self.broken.append(f"message {message_id} differs from what was sent")
            elif not standing.sent(str(message_id), json.loads(columns), version, whole):
                self.broken.append(f"message {message_id} is stored with a wrong position or time")

    def applied(self, rows: Iterable[Any]) -> None:
        """Verify some steps of the inbox."""
        standing = self._leaves.standing
        whole = not self._leaves.unknown and not standing.older
        for consumer, message, step, *columns, reply, at in rows:
            if [step, *columns, json.loads(reply)] == _CANCELLED and consumer in self._timers.get(message, {}):
                continue
            now = [*columns, hashlib.sha256(canonical(json.loads(reply)).encode()).hexdigest(), at]
            known = standing.applied(consumer, message, step, now)
            if known is False or (known is None and whole):
                self.broken.append(f"step {step} of {message} for {consumer} differs from what was applied")

    def read(self, rows: Iterable[Any]) -> None:
        """Verify some read sets."""
        standing, erased = self._leaves.standing, set(self._leaves.unknown.values())
        for row in rows:
            commit, cause, reads, at, *_ = row
            answers = answers_text(row)
            texts = [canonical(json.loads(reads)), *([] if answers is None else [answers])]
            now = [cause, *(hashlib.sha256(text.encode()).hexdigest() for text in texts), at]
            if standing.unknown(commit, erased) or not standing.read(commit, now):
                self.broken.append(f"the read set of commit {commit} differs from what was stored")

    def unread(self, deleted: set[str]) -> None:
        """Report missing read sets, after all read sets; an earlier release may have removed the `deleted` ones."""
        for commit in sorted(self._leaves.standing.unread() - deleted):
            self.broken.append(f"the read set of commit {commit} is missing")
