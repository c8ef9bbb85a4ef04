"""Encryption of a backup's keys by a passphrase (Argon2id, XSalsa20-Poly1305), and its authentication (HMAC-SHA256)."""

import hmac
from dataclasses import dataclass
from hashlib import sha256

from nacl.exceptions import CryptoError
from nacl.exceptions import ValueError as NaClValueError
from nacl.pwhash import argon2id
from nacl.secret import SecretBox
from nacl.utils import random
from pydantic import BaseModel, ConfigDict

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

OPERATIONS, MEMORY_BYTES = argon2id.OPSLIMIT_MODERATE, argon2id.MEMLIMIT_MODERATE
"""Cost of a guess: about half a second and 256 MB."""
MOST_OPERATIONS, MOST_MEMORY_BYTES = argon2id.OPSLIMIT_SENSITIVE, argon2id.MEMLIMIT_SENSITIVE
"""Limits of what a file may demand."""


class Salt(BaseModel):
    """The public parameters of the derivation."""

    model_config = ConfigDict(frozen=True)

    salt: str
    operations: int
    memory_bytes: int

    @classmethod
    def new(cls) -> "Salt":
        """Return parameters with a random salt."""
        return cls(salt=random(argon2id.SALTBYTES).hex(), operations=OPERATIONS, memory_bytes=MEMORY_BYTES)


@dataclass(frozen=True)
class Seal:
    """Keys derived from a passphrase."""

    box: bytes
    signing: bytes

    @classmethod
    def derive(cls, passphrase: str, salt: Salt) -> "Seal":
        """Derive both keys. Raises `Permanent` for parameters that no backup of ours has."""
        if salt.operations > MOST_OPERATIONS or salt.memory_bytes > MOST_MEMORY_BYTES:
            raise damaged("its parameters of the passphrase are not valid")
        size, given = 2 * SecretBox.KEY_SIZE, passphrase.encode()
        try:
            secret = argon2id.kdf(size, given, bytes.fromhex(salt.salt), salt.operations, salt.memory_bytes)
        except (ValueError, NaClValueError):
            raise damaged("its parameters of the passphrase are not valid") from None
        return cls(secret[: SecretBox.KEY_SIZE], secret[SecretBox.KEY_SIZE :])

    def encrypt(self, content: bytes) -> bytes:
        """Return the content encrypted under a random nonce."""
        return bytes(SecretBox(self.box).encrypt(content))

    def decrypt(self, sealed: bytes) -> bytes:
        """Return the content. Raises `Permanent` for a wrong passphrase."""
        try:
            return bytes(SecretBox(self.box).decrypt(sealed))
        except CryptoError:
            problem = Problem(field="COUNTERPOINT_BACKUP_PASSPHRASE", problem="is not the passphrase of this backup")
            raise Permanent(ErrorCode.PASSPHRASE, (problem,)) from None

    def sign(self, content: bytes) -> str:
        """Return the authentication code of the content, in hex."""
        return hmac.new(self.signing, content, sha256).hexdigest()

    def signed(self, content: bytes, code: str) -> bool:
        """Whether the code is that of the content."""
        return hmac.compare_digest(self.sign(content), code)


def damaged(problem: str) -> Permanent:
    """Return the error of a file that is not a complete backup."""
    return Permanent(ErrorCode.BACKUP_DAMAGED, (Problem(field="backup", problem=f"{problem}; use another backup"),))
