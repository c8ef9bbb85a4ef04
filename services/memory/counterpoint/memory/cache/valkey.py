"""Valkey, the second level of the cache: encrypted and authenticated, so that it can neither be read nor changed there.

It may be unreachable, slow or full at any time: then it counts as empty, after a short timeout.
"""

import asyncio
import hmac
import time

import redis.asyncio as redis
import structlog
from nacl.exceptions import CryptoError
from nacl.secret import Aead
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

log = structlog.get_logger()

ENTRY_TTL_S = 3600
"""Lifetime of an entry, in seconds."""
_TIMEOUT_S = 0.05
_TLS_CONNECT_S = 0.25
"""A TLS handshake takes three round trips and two signatures."""
_RETRY_AFTER_S = 5.0
_AT_ONCE = 16
_PURPOSE = b"counterpoint cache v1"
_REFUSED = (AuthenticationError, NoPermissionError)
_REMEDY = "correct user and password in COUNTERPOINT_VALKEY_URL, and permit this user get and set on all keys"
_LOST = (RedisError, OSError, TimeoutError)


class Valkey:
    """Entries by key, encrypted by a key that is derived from `secret`."""

    def __init__(
        self, url: str, secret: bytes, *, ttl_s: int = ENTRY_TTL_S, retry_after_s: float = _RETRY_AFTER_S
    ) -> None:
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TLS_CONNECT_S if url.startswith("rediss:") else _TIMEOUT_S,
            # The client's own retries would wait for seconds while a query does.
            retry=Retry(NoBackoff(), 0),
        )
        self._box = Aead(hmac.digest(secret, _PURPOSE, "sha256"))
        self._ttl_s = ttl_s
        self._retry_after_s = retry_after_s
        self._away_until = 0.0
        self._full_until = 0.0
        self._asking = 0
        self._writing: set[asyncio.Task[None]] = set()

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None for a miss or a value that was not encrypted by us."""
        if time.monotonic() < self._away_until or self._asking >= _AT_ONCE:
            return None
        self._asking += 1
        try:
            sealed = await self._client.get(key)
        except _LOST as error:
            self._away(error)
            return None
        finally:
            self._asking -= 1
        if not isinstance(sealed, bytes):
            return None
        try:
            return self._box.decrypt(sealed, key)
        except (CryptoError, ValueError):
            log.warning("cache.decryption_failed", level="l2")
            return None

    def put(self, key: bytes, value: bytes) -> None:
        """Write in the background, if the queue has room."""
        now = time.monotonic()
        if now < self._away_until or now < self._full_until or len(self._writing) >= _AT_ONCE:
            return
        task = asyncio.create_task(self._put(key, value))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def written(self) -> None:
        """Wait until everything put so far has been written, or was given up."""
        await asyncio.gather(*self._writing)

    async def close(self) -> None:
        """Close the connections."""
        await self.written()
        await self._client.aclose()

    async def _put(self, key: bytes, value: bytes) -> None:
        try:
            await self._client.set(key, bytes(self._box.encrypt(value, key)), ex=self._ttl_s)
        except _REFUSED as error:
            self._away(error)
        except ResponseError as error:
            # It answers, but takes no writes: its content may still be read.
            log.warning("cache.full", level="l2", reason=type(error).__name__)
            self._full_until = time.monotonic() + self._retry_after_s
        except _LOST as error:
            self._away(error)

    def _away(self, error: BaseException) -> None:
        if isinstance(error, _REFUSED):
            log.error("cache.refused", level="l2", reason=str(error), remedy=_REMEDY)
        else:
            log.warning("cache.away", level="l2", reason=type(error).__name__)
        self._away_until = time.monotonic() + self._retry_after_s
