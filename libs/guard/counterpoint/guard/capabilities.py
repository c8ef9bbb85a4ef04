"""Capabilities: signed, expiring tokens for what one service may do for one message, project and task.

A token is a biscuit. Its authority block has one fact, `grant(root key, grant as JSON)`, written by memory; later
blocks can only narrow it, and any holder can append one. Memory mints and verifies: this module evaluates the
attenuations of later blocks, the diode compares the `Grant` with the request. Rights that are exactly what the policy
gives the audience are left out of the token; the reader takes them from the policy.
"""

import json
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, Self

from biscuit_auth import (
    AuthorizationError,
    AuthorizerBuilder,
    Biscuit,
    BiscuitBuilder,
    BiscuitValidationError,
    DataLogError,
    KeyPair,
    PrivateKey,
    PublicKey,
    Rule,
    UnverifiedBiscuit,
)
from cachetools import LRUCache
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr

from counterpoint.guard.policy import policy
from counterpoint.guard.rights import service_rights
from counterpoint.proto.errors import Denied, ErrorCode, Transient
from counterpoint.proto.tasks import Budget

TOKEN_MAX_BYTES = 16_384
BLOCKS_MAX = 8
_EVALUATION_TIME_LIMIT = timedelta(seconds=5)
"""Biscuit's default limit of 1 ms refuses valid tokens on a busy machine."""

_OUT_OF_LIMITS = "Reached Datalog execution limits"
_GRANT_QUERY = Rule("granted($grant) <- grant($root, $grant)")
_ROOT_KEY = re.compile(r"\Agrant\(hex:([0-9a-f]{64}), ")

_NAME = re.compile(r"[A-Za-z0-9_.*-]*")
_NAME_SET = rf'\{{(?:,|"{_NAME.pattern}"(?:, "{_NAME.pattern}")*)\}}'
_CHECKS = (
    *(rf"{fact}\(\${fact}\), {_NAME_SET}\.contains\(\${fact}\)" for fact in ("store", "operation", "agent")),
    r"time\(\$time\), \$time < -?[0-9]+",
)
_ATTENUATION = re.compile(rf"(?:check if (?:{'|'.join(_CHECKS)});\n)*")
"""The only legal content of a later block, as biscuit prints it.

Other blocks are refused unevaluated, since biscuit's limits do not stop every loop of its language.
"""


class Access(NamedTuple):
    """One access of a request: an operation on a store, signed by an agent (empty without a signature)."""

    store: str
    operation: str
    agent: str = ""


class Binding(BaseModel):
    """The binding of a capability: one audience (service), project, task and inbound message, and its expiry."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    audience: str = Field(min_length=1)
    project: str = Field(min_length=1)
    task: str | None
    message: str = Field(min_length=1)
    expires_at: AwareDatetime


class Grant(Binding):
    """The rights of a capability, and its binding. `budget` is what all calls of the replay may cost that it is for."""

    rights: frozenset[tuple[str, str]]
    sends: frozenset[str]
    clearance: int = Field(ge=0)
    agents: frozenset[str]
    budget: Budget | None = None

    @property
    def replays(self) -> bool:
        """Whether it is for a replay with another model: of jobs these alone have a budget."""
        return self.budget is not None


def _encode(grant: Grant) -> str:
    """Return a grant as a token has it: without rights if they are all that the policy gives the audience."""
    if grant.audience in policy().services:
        rights = service_rights(policy(), grant.audience)
        if all(getattr(grant, name) == value for name, value in rights.items()):
            return grant.model_dump_json(exclude=set(rights), exclude_defaults=True)
    return grant.model_dump_json(exclude_defaults=True)


def _decode(text: str) -> Grant:
    """Return the grant of a token, whose rights may be left out, but not some of them. Raises `ValueError`."""
    fields = json.loads(text)
    if isinstance(fields, dict) and str(fields.get("audience")) in policy().services:
        rights = service_rights(policy(), str(fields["audience"]))
        if rights.keys().isdisjoint(fields):
            return Grant.model_validate({**Binding.model_validate_json(text).model_dump(), **rights})
    return Grant.model_validate_json(text)


class SigningKey(BaseModel):
    """A root key: its id, which tokens name, and its Ed25519 seed as 64 hex digits.

    Tokens of a key that is not `accepted` are refused; it still recognises fingerprints that were made with it.
    """

    model_config = ConfigDict(frozen=True)

    id: int = Field(ge=0, lt=2**32)
    private: SecretStr
    accepted: bool = True

    @classmethod
    def generate(cls, key_id: int) -> Self:
        """Return a new random key."""
        return cls(id=key_id, private=SecretStr(KeyPair().private_key.to_bytes().hex()))


class Keyring:
    """The root keys, newest first: the first mints, all that are accepted verify.

    The last `cached` tokens that were minted or verified are cached, so that their signature is checked once.
    """

    def __init__(self, keys: Sequence[SigningKey], cached: int = 4096) -> None:
        if not keys or not keys[0].accepted:
            raise ValueError("a keyring needs a key, and accepts the newest")
        pairs = {
            key.id: KeyPair.from_private_key(PrivateKey(f"ed25519-private/{key.private.get_secret_value()}"))
            for key in keys
        }
        if len(pairs) != len(keys):
            raise ValueError("two keys of a keyring have the same id")
        self.newest_id = keys[0].id
        self.newest = pairs[self.newest_id]
        self._public_keys = {key.id: pairs[key.id].public_key for key in keys if key.accepted}
        self._verified_tokens: LRUCache[str, _VerifiedToken] = LRUCache(cached)

    def verified(self, token: str) -> "_VerifiedToken":
        """Return the verified token. Raises `Denied` `malformed` or `signature`."""
        verified = self._verified_tokens.get(token)
        if verified is None:
            verified = self._verify(token)
            self.remember(token, verified)
        return verified

    def remember(self, token: str, verified: "_VerifiedToken") -> None:
        """Cache a token as verified."""
        self._verified_tokens[token] = verified

    def _verify(self, token: str) -> "_VerifiedToken":
        parsed = _parsed(token)
        root_key_id = parsed.root_key_id()
        public_key = None if root_key_id is None else self._public_keys.get(root_key_id)
        if public_key is None:
            raise Denied(ErrorCode.SIGNATURE, "a token signed by a key in use")
        try:
            biscuit = parsed.verify(public_key)
        except BiscuitValidationError as error:
            raise Denied(ErrorCode.SIGNATURE, "an unaltered token") from error
        if biscuit.to_base64() != token:
            raise Denied(ErrorCode.MALFORMED, "the token as it was minted, not another spelling of it")
        for index in range(1, biscuit.block_count()):
            if _ATTENUATION.fullmatch(biscuit.block_source(index)) is None:
                raise Denied(ErrorCode.MALFORMED, "attenuations of the known kind only")
        try:
            (fact,) = _authorizer("", {}).build(biscuit).query(_GRANT_QUERY)
            grant = _decode(fact.terms[0])
        except ValueError as error:
            raise Denied(ErrorCode.MALFORMED, "one grant, of this version") from error
        except (AuthorizationError, DataLogError) as error:
            raise _evaluation_error(error) from error
        return _VerifiedToken(biscuit, grant, frozenset(biscuit.revocation_ids), attenuated=biscuit.block_count() > 1)


@dataclass(frozen=True, slots=True)
class _VerifiedToken:
    biscuit: Biscuit
    grant: Grant
    revocation_ids: frozenset[str]
    attenuated: bool


def mint(keyring: Keyring, grant: Grant) -> str:
    """Return a token for `grant` signed by the newest key, as URL-safe base64."""
    builder = BiscuitBuilder(
        "grant({root}, {grant});",
        {"root": keyring.newest.public_key.to_bytes(), "grant": _encode(grant)},
    )
    builder.set_root_key_id(keyring.newest_id)
    biscuit = builder.build(keyring.newest.private_key)
    token = biscuit.to_base64()
    keyring.remember(token, _VerifiedToken(biscuit, grant, frozenset(biscuit.revocation_ids), attenuated=False))
    return token


def verify(
    keyring: Keyring,
    token: str,
    accesses: Iterable[Access],
    *,
    now: datetime,
    revoked: AbstractSet[str] = frozenset(),
) -> Grant:
    """Return the grant of a token after checking signature, expiry at `now`, revocation and attenuations.

    `revoked` are revocation ids (see `revocation_ids`). Raises `Denied` `malformed`, `signature`, `revoked`, `expired`
    or `attenuated`, and `Transient` when the evaluation timed out. The grant's rights are not compared with `accesses`;
    the diode does that.
    """
    verified = keyring.verified(token)
    if not verified.revocation_ids.isdisjoint(revoked):
        raise Denied(ErrorCode.REVOKED, "a capability that is not revoked")
    if now >= verified.grant.expires_at:
        raise Denied(ErrorCode.EXPIRED, f"a capability that ends after {now.isoformat()}")
    if verified.attenuated:
        now_s = int(now.timestamp())
        for access in accesses:
            _evaluate(verified.biscuit, access, now_s)
    return verified.grant


def unverified_grant(token: str) -> Grant:
    """Return the grant in a token, verified only with the key in the token itself, which anyone can make.

    Raises `Denied` `malformed` or `signature`.
    """
    parsed = _parsed(token)
    root = _ROOT_KEY.match(parsed.block_source(0))
    if root is None:
        raise Denied(ErrorCode.MALFORMED, "a token minted by memory")
    try:
        biscuit = parsed.verify(PublicKey(f"ed25519/{root[1]}"))
        (fact,) = _authorizer("", {}).build(biscuit).query(_GRANT_QUERY)
        return _decode(fact.terms[0])
    except BiscuitValidationError as error:
        raise Denied(ErrorCode.SIGNATURE, "an unaltered token") from error
    except ValueError as error:
        raise Denied(ErrorCode.MALFORMED, "one grant, of this version") from error
    except (AuthorizationError, DataLogError) as error:
        raise _evaluation_error(error) from error


def revocation_ids(token: str) -> tuple[str, ...]:
    """Return the revocation ids of a token's blocks; revoking the first also revokes all tokens narrowed from it."""
    return tuple(_parsed(token).revocation_ids)


def _parsed(token: str) -> UnverifiedBiscuit:
    if len(token) > TOKEN_MAX_BYTES:
        raise Denied(ErrorCode.MALFORMED, f"a token of at most {TOKEN_MAX_BYTES} bytes")
    try:
        parsed = UnverifiedBiscuit.from_base64(token)
    except BiscuitValidationError as error:
        raise Denied(ErrorCode.MALFORMED, "a token") from error
    if parsed.block_count() > BLOCKS_MAX:
        raise Denied(ErrorCode.MALFORMED, f"a token of at most {BLOCKS_MAX} blocks")
    return parsed


def _evaluate(biscuit: Biscuit, access: Access, now_s: int) -> None:
    """Evaluate one access at a time, so that every check holds for each access."""
    try:
        _request(access, now_s).build(biscuit).authorize()
    except (AuthorizationError, DataLogError) as error:
        raise _evaluation_error(error) from error


@lru_cache(maxsize=1024)
def _request(access: Access, now_s: int) -> AuthorizerBuilder:
    return _authorizer(
        "store({store}); operation({operation}); agent({agent}); time({now_s}); allow if true;",
        {**access._asdict(), "now_s": now_s},
    )


def _authorizer(source: str, parameters: dict[str, object]) -> AuthorizerBuilder:
    builder = AuthorizerBuilder(source, parameters)
    limits = builder.limits()  # type: ignore[attr-defined]
    limits.max_time = _EVALUATION_TIME_LIMIT
    builder.set_limits(limits)  # type: ignore[attr-defined]
    return builder


def _evaluation_error(error: Exception) -> Denied | Transient:
    if str(error) == _OUT_OF_LIMITS:
        return Transient("the attenuations of a capability took too long to evaluate")
    return Denied(ErrorCode.ATTENUATED, str(error))
