"""Settings of the memory service, from the environment."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from counterpoint.bus import BusSettings
from counterpoint.guard.capabilities import SigningKey


class MemorySettings(BusSettings):
    """Settings of the record, the keys and the limits.

    `capability_life_s` is longer than a stream keeps a message, so that a message that waited for its service still
    works. `data_dir` is the folder of the embedded tiers; without one they are in a temporary folder and rebuilt at
    each start. `audit_key` is the seed of the key that signs checkpoints of the audit log, 64 hex digits. Checkpoints
    are exported to a file in `audit_dir`, by default `audit` in the data folder, and to the bus. `provider_clearance`
    is the highest label that a remote model or search may receive. `reranker` is `file:DIR`. `model` extracts
    relations, unless `relations_tokens` is 0.
    """

    postgres_url: SecretStr
    valkey_url: SecretStr | None = None
    signing_keys: Annotated[tuple[SigningKey, ...], NoDecode]
    audit_key: SecretStr
    audit_dir: Path | None = None
    data_dir: Path | None = None
    admin_token: SecretStr | None = None
    model_cache_dir: Path | None = None
    qdrant_url: SecretStr | None = None
    qdrant_api_key: SecretStr | None = None
    postgres_pool: int = Field(default=12, ge=2)
    postgres_timeout_s: float = 5.0
    lease_retry_s: float = 0.5
    commit_queue: int = 2000
    disk_reserve_bytes: int = Field(default=128 << 20, ge=0)
    sweep_age_s: float = 2.0
    capability_life_s: float = 8 * 86_400.0
    reconcile_every_s: float = 60.0
    retention_s: float = 7 * 86_400.0
    read_set_items: int = 200_000
    recall_share: float = Field(default=0.01, ge=0, le=1)
    embedding_model: str | None = None
    embedding_dimensions: int = Field(default=384, ge=1, le=16_000)
    reranker: str | None = None
    gateway_url: str | None = None
    model: str | None = None
    relations_tokens: int = Field(default=2_000_000, ge=0)
    provider_clearance: Literal["public", "internal", "confidential", "secret"] = "internal"

    @property
    def own_dimensions(self) -> int | None:
        """Return the required dimensions of a model in a folder; None if not set."""
        return self.embedding_dimensions if "embedding_dimensions" in self.model_fields_set else None

    @property
    def checkpoints_dir(self) -> Path | None:
        """Return the folder of the checkpoint file; None if neither folder is set."""
        return self.audit_dir or (self.data_dir / "audit" if self.data_dir else None)

    @field_validator("signing_keys", mode="before")
    @classmethod
    def _keys(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value
