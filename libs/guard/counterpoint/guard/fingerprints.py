"""Fingerprints: what a sensitive value is called in problems, logs and releases, where the value itself must not be.

Keyed, so that whoever reads a fingerprint cannot try values until one fits.
"""

import hashlib
import hmac
from collections.abc import Sequence

from counterpoint.guard.capabilities import SigningKey

DIGITS = 16
"""Hex digits of a fingerprint."""
_PURPOSE = b"counterpoint fingerprints v1"


class Fingerprints:
    """Fingerprints under memory's signing keys, newest first: the first one names, all of them recognise."""

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        seeds = (bytes.fromhex(key.private.get_secret_value()) for key in keys)
        self._keys = [hmac.digest(seed, _PURPOSE, "sha256") for seed in seeds]

    def of(self, value: str) -> str:
        """The fingerprint of a value."""
        return _of(self._keys[0], value)

    def among(self, value: str, known: frozenset[str]) -> bool:
        """Whether a fingerprint of this value, under any of the keys, is known."""
        return bool(known) and any(_of(key, value) in known for key in self._keys)


def _of(key: bytes, value: str) -> str:
    return hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:DIGITS]
