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
    """The root of the log with `size` leaves, and its signed note."""

    size: int
    root: bytes
    note: str


class NoteKey:
    """The key that signs checkpoints; its name is the origin of the log.

    `seed_hex` is the seed of an Ed25519 key. Raises `ValueError` for an invalid one.
    """

    def __init__(self, seed_hex: str) -> None:
        self._signing = SigningKey(bytes.fromhex(seed_hex))
        public = bytes(self._signing.verify_key)
        self.origin = f"counterpoint/{hashlib.sha256(public).hexdigest()[:16]}"
        self._hash = key_hash(self.origin, public)
        self._verifying = VerifyKey(public)
        self.public = f"{self.origin}+{self._hash.hex()}+{base64.b64encode(_ED25519 + public).decode()}"
        """Return the verifier key, for everyone who verifies: name, hash and public key."""

    def signed(self, size: int, root: bytes) -> Checkpoint:
        """Return the checkpoint of a tree; it is the same each time for the same tree."""
        text = f"{self.origin}\n{size}\n{base64.b64encode(root).decode()}\n"
        signature = self._signing.sign(text.encode()).signature
        return Checkpoint(
            size, root, f"{text}\n\u2014 {self.origin} {base64.b64encode(self._hash + signature).decode()}\n"
        )

    def read(self, text: str) -> "ParsedNotes":
        """Parse all notes in a text. An incomplete note is skipped: the end of a file may be torn."""
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
    """Checkpoints of a text: ours, the number of forged ones, and the number of those of other keys."""

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
    """Return the four bytes by which a signature identifies its key."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:4]


def _root(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
