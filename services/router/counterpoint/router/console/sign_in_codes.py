"""Codes that sign a browser in once, so that no address contains a token.

A code is known to the process that made it alone. Behind several routers, sign in with the token.
"""

import hashlib
import secrets
import time
from collections.abc import Callable

from cachetools import TTLCache

VALID_S = 300.0
_CODE_BYTES = 32
_CODES = 1000


class SignInCodes:
    """Tokens by the hash of a code. A code is valid once, for `VALID_S`."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._tokens: TTLCache[str, str] = TTLCache(_CODES, VALID_S, timer=clock_s)

    def create(self, token: str) -> str:
        """Return a new code for a token."""
        code = secrets.token_urlsafe(_CODE_BYTES)
        self._tokens[_key(code)] = token
        return code

    def redeem(self, code: str) -> str | None:
        """Return the token of a code, and forget it; None for a code that is used, expired or unknown."""
        return self._tokens.pop(_key(code), None)


def _key(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
