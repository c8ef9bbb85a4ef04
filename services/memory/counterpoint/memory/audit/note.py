"""Checkpoints as signed notes (C2SP signed-note and tlog-checkpoint): origin, size, root, and an Ed25519 signature."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

_ED25519 = b"\x01"
_NOTE = re.compile(
    r"^(?P<text>(?P<origin>[^\n]+)\n(?P<size>0|[1-9][0-9]{0,18})\n(?P<root>[A-Za-z0-9+/]{43}=)\n)\n"
    r"\u2014 (?P<name>[^\s+]+) (?P<signature>[A-Za-z0-9+/]{91}=)\n",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The root of the log when it had `size` leaves, and the note that says so."""

    size: int
    root: bytes
    note: str


class NoteKey:
    """The key that checkpoints are signed with; its name is the origin of the log.

    `seed_hex` is the seed of an Ed25519 key. Raises `ValueError` when it is none.
    """

    def __init__(self, seed_hex: str) -> None:
        self._signing = SigningKey(bytes.fromhex(seed_hex))
        public = bytes(self._signing.verify_key)
        self.origin = f"counterpoint/{hashlib.sha256(public).hexdigest()[:16]}"
        self._hash = key_hash(self.origin, public)
        self._verifying = VerifyKey(public)
        self.public = f"{self.origin}+{self._hash.hex()}+{base64.b64encode(_ED25519 + public).decode()}"
        """The verifier key, to be given to whoever checks: name, hash and public key."""

    def signed(self, size: int, root: bytes) -> Checkpoint:
        """The checkpoint of a tree; the same again for the same tree."""
        text = f"{self.origin}\n{size}\n{base64.b64encode(root).decode()}\n"
        signature = self._signing.sign(text.encode()).signature
        return Checkpoint(
            size, root, f"{text}\n\u2014 {self.origin} {base64.b64encode(self._hash + signature).decode()}\n"
        )

    def read(self, text: str) -> "ParsedNotes":
        """All notes in a text. What is no whole note is passed over: the end of a file may be torn."""
        good, forged, foreign = [], 0, 0
        for found in _NOTE.finditer(text):
            signature = base64.b64decode(found["signature"])
            if found["name"] != self.origin or found["origin"] != self.origin or signature[:4] != self._hash:
                foreign += 1
                continue
            try:
                self._verifying.verify(found["text"].encode(), signature[4:])
            except BadSignatureError:
                forged += 1
                continue
            good.append(Checkpoint(int(found["size"]), _root(found["root"]), found[0]))
        return ParsedNotes(tuple(good), forged, foreign)


@dataclass(frozen=True, slots=True)
class ParsedNotes:
    """The checkpoints of a text that are ours, how many only say so, and how many are of another key."""

    checkpoints: tuple[Checkpoint, ...] = ()
    forged: int = 0
    foreign: int = 0

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(self.checkpoints)

    @property
    def last(self) -> Checkpoint | None:
        """Return the checkpoint of the largest tree."""
        return max(self.checkpoints, key=lambda checkpoint: checkpoint.size, default=None)


def key_hash(name: str, public: bytes) -> bytes:
    """The four bytes by which a signature names its key."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:4]


def _root(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
