"""What the memory service reads from its environment."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from counterpoint.bus import BusSettings
from counterpoint.guard.capabilities import SigningKey


class MemorySettings(BusSettings):
    """The record, the keys, and the limits of the one door.

    `capability_life_s` is longer than a stream keeps a message: one that had to wait for its service still works.
    `revoked_capabilities` are revocation ids of tokens that count no more before their time is over.
    """

    postgres_url: SecretStr
    valkey_url: SecretStr | None = None
    signing_keys: Annotated[tuple[SigningKey, ...], NoDecode]
    admin_token: SecretStr | None = None
    model_cache_dir: Path | None = None
    postgres_pool: int = Field(default=12, ge=2)
    postgres_timeout_s: float = 5.0
    lease_retry_s: float = 0.5
    commit_queue: int = 2000
    sweep_age_s: float = 2.0
    capability_life_s: float = 8 * 86_400.0
    revoked_capabilities: frozenset[str] = frozenset()
    reconcile_every_s: float = 60.0
    retention_s: float = 7 * 86_400.0
    read_set_items: int = 200_000

    @field_validator("signing_keys", mode="before")
    @classmethod
    def _keys(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value
