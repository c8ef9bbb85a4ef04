"""The secrets of one stack, made once and kept in a file that only its user may read."""

from pathlib import Path
from secrets import token_hex, token_urlsafe

from pydantic import BaseModel, ConfigDict, ValidationError

from counterpoint.local.postgres import PostgresPasswords
from counterpoint.local.private import write_private
from counterpoint.proto.errors import Permanent, Problem


class SigningKey(BaseModel):
    """A key of the capabilities: 32 random bytes in hex, the seed of an Ed25519 key."""

    model_config = ConfigDict(frozen=True)

    id: int
    private: str


class Credentials(BaseModel):
    """Every secret of a stack. Only the supervisor holds them all."""

    model_config = ConfigDict(frozen=True)

    nats: dict[str, str]
    postgres: PostgresPasswords
    valkey: str
    signing_keys: tuple[SigningKey, ...]
    admin_token: str
    audit_key: str = ""
    """The seed of the key that checkpoints of the audit log are signed with, in hex; empty in an older file."""
    nats_store_key: str = ""
    """What the streams are encrypted with on disk; empty in an older file."""

    @classmethod
    def make(cls) -> "Credentials":
        """New ones, without NATS users. Two signing keys, newest first."""
        return cls(
            nats={},
            postgres=PostgresPasswords(),
            valkey=token_hex(24),
            signing_keys=tuple(SigningKey(id=number, private=token_hex(32)) for number in (2, 1)),
            admin_token=token_urlsafe(32),
            audit_key=token_hex(32),
            nats_store_key=token_hex(32),
        )

    def with_nats_users(self, users: tuple[str, ...]) -> "Credentials":
        """These, with a password for each of `users` that has none yet."""
        made = {user: token_hex(24) for user in users if user not in self.nats}
        return self.model_copy(update={"nats": self.nats | made})

    def with_keys(self) -> "Credentials":
        """These, with a key for the audit log and one for the streams where there is none yet."""
        made = {name: token_hex(32) for name in ("audit_key", "nats_store_key") if not getattr(self, name)}
        return self.model_copy(update=made) if made else self


def load_credentials(path: Path, nats_users: tuple[str, ...]) -> Credentials:
    """Read them, or make and write them. Raises Permanent when the file is damaged: the data needs the old ones."""
    try:
        kept = Credentials.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        kept = None
    except ValidationError as error:
        fields = tuple(
            Problem(field=".".join(map(str, wrong["loc"])) or path.name, problem=wrong["type"])
            for wrong in error.errors(include_input=False, include_url=False)
        )
        raise Permanent("secrets_damaged", fields) from None
    wanted = (kept or Credentials.make()).with_nats_users(nats_users).with_keys()
    if wanted != kept:
        write_private(path, wanted.model_dump_json(indent=1))
    return wanted
