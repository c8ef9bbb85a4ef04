"""The secrets of one stack, generated once and stored in a file that only its user may read."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_hex, token_urlsafe

from pydantic import BaseModel, ConfigDict, ValidationError

from counterpoint.local.postgres import PostgresPasswords
from counterpoint.local.private_files import write_private
from counterpoint.proto.errors import ErrorCode, Permanent, Problem


class StoredSigningKey(BaseModel):
    """A signing key of capabilities: the seed of an Ed25519 key, 32 random bytes in hex.

    Tokens of a key that is not `accepted` are refused. `made_at` is None for the first keys of a stack.
    """

    model_config = ConfigDict(frozen=True)

    id: int
    private: str
    accepted: bool = True
    made_at: datetime | None = None


class Credentials(BaseModel):
    """All secrets of a stack. Only the supervisor has them all."""

    model_config = ConfigDict(frozen=True)

    nats: dict[str, str]
    postgres: PostgresPasswords
    valkey: str
    signing_keys: tuple[StoredSigningKey, ...]
    admin_token: str
    audit_key: str = ""
    """The seed of the key that signs audit checkpoints, in hex; empty in an older file."""
    nats_store_key: str = ""
    """The encryption key of the streams on disk; empty in an older file."""
    installation: str = ""
    """The id of this installation, which its database carries; empty in an older file."""

    @property
    def signing_keys_setting(self) -> str:
        """The signing keys as memory's setting has them: JSON, without the times at which they were made."""
        return json.dumps([key.model_dump(exclude={"made_at"}) for key in self.signing_keys])

    @classmethod
    def make(cls) -> "Credentials":
        """Generate credentials without NATS users, and two signing keys, newest first."""
        return cls(
            nats={},
            postgres=PostgresPasswords(),
            valkey=token_hex(24),
            signing_keys=tuple(StoredSigningKey(id=number, private=token_hex(32)) for number in (2, 1)),
            admin_token=token_urlsafe(32),
            audit_key=token_hex(32),
            nats_store_key=token_hex(32),
            installation=token_hex(16),
        )

    def with_nats_users(self, users: tuple[str, ...]) -> "Credentials":
        """Return a copy with a password for each user that lacks one."""
        new = {user: token_hex(24) for user in users if user not in self.nats}
        return self.model_copy(update={"nats": self.nats | new})

    def with_new_key(self, now: datetime, token_life: timedelta) -> "Credentials":
        """Return a copy with a new signing key, which signs from now on.

        A key is accepted until all its tokens have expired: for `token_life` after a newer one was made.
        """
        new = StoredSigningKey(id=self.signing_keys[0].id + 1, private=token_hex(32), made_at=now)
        kept, successor = [new], new
        for key in self.signing_keys:
            has_tokens = successor.made_at is not None and now - successor.made_at < token_life
            kept.append(key.model_copy(update={"accepted": key.accepted and has_tokens}))
            successor = key
        return self.model_copy(update={"signing_keys": tuple(kept)})

    def with_new_passwords(self, users: tuple[str, ...]) -> "Credentials":
        """Return a copy with new passwords of these logins of the bus."""
        return self.model_copy(update={"nats": self.nats | {user: token_hex(24) for user in users}})

    def with_keys(self) -> "Credentials":
        """Return a copy with what a file of an older release lacks."""
        sizes = {"audit_key": 32, "nats_store_key": 32, "installation": 16}
        new = {name: token_hex(size) for name, size in sizes.items() if not getattr(self, name)}
        return self.model_copy(update=new) if new else self


def read_credentials(path: Path) -> Credentials | None:
    """Read the credentials; None if there is no file. Raises `Permanent` `secrets_damaged` for an unreadable one."""
    try:
        return Credentials.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        fields = tuple(
            Problem(field=".".join(map(str, wrong["loc"])) or path.name, problem=wrong["type"])
            for wrong in error.errors(include_input=False, include_url=False)
        )
        raise Permanent(ErrorCode.SECRETS_DAMAGED, fields) from None


def store_credentials(path: Path, credentials: Credentials) -> None:
    """Replace the file."""
    write_private(path, credentials.model_dump_json(indent=1, exclude_none=True))


def load_credentials(path: Path, nats_users: tuple[str, ...]) -> Credentials:
    """Read the credentials, or generate and store them. Raises `Permanent` `secrets_damaged` for an unreadable file."""
    stored = read_credentials(path)
    complete = (stored or Credentials.make()).with_nats_users(nats_users).with_keys()
    if complete != stored or "backup" not in complete.postgres.model_fields_set:
        store_credentials(path, complete)
    return complete
