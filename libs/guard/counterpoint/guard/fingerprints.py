"""Fingerprints: keyed hashes that stand for sensitive values in problems, logs and releases.

The key prevents guessing values by their fingerprint.
"""

import hashlib
import hmac
from collections.abc import Sequence

from counterpoint.guard.capabilities import SigningKey

DIGITS = 16
"""Length of a fingerprint in hex digits."""
_PURPOSE = b"counterpoint fingerprints v1"


class Fingerprints:
    """Fingerprints under memory's signing keys, newest first: the first makes them, all recognise them."""

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        seeds = (bytes.fromhex(key.private.get_secret_value()) for key in keys)
        self._keys = [hmac.digest(seed, _PURPOSE, "sha256") for seed in seeds]

    def of(self, value: str) -> str:
        """Return the fingerprint of a value."""
        return _of(self._keys[0], value)

    def matches(self, value: str, fingerprints: frozenset[str]) -> bool:
        """Whether the value's fingerprint under any key is in `fingerprints`."""
        return bool(fingerprints) and any(_of(key, value) in fingerprints for key in self._keys)


def _of(key: bytes, value: str) -> str:
    return hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:DIGITS]
