"""Signing keys: a new one signs, the one before is accepted until its tokens are gone, and recognises fingerprints."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from counterpoint.guard.capabilities import Grant, Keyring, SigningKey, mint, verify
from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.local.credentials import Credentials
from counterpoint.proto.errors import Denied

LIFE = timedelta(days=8)
START = datetime(2026, 3, 2, tzinfo=UTC)


def keys(credentials: Credentials) -> tuple[SigningKey, ...]:
    """The keys as memory gets them."""
    dumped = (key.model_dump(exclude={"made_at"}) for key in credentials.signing_keys)
    return tuple(SigningKey(**{**key, "private": SecretStr(key["private"])}) for key in dumped)


def accepted(credentials: Credentials) -> list[int]:
    return [key.id for key in credentials.signing_keys if key.accepted]


def token(keyring: Keyring) -> str:
    grant = Grant(
        audience="developer",
        project="orders",
        task="t-1",
        message="m-1",
        expires_at=START + LIFE,
        rights=frozenset(),
        sends=frozenset(),
        clearance=1,
        agents=frozenset(),
    )
    return mint(keyring, grant)


def test_the_key_before_is_accepted_until_its_tokens_have_expired() -> None:
    first = Credentials.make()
    assert accepted(first) == [2, 1]
    second = first.with_new_key(START, LIFE)
    assert accepted(second) == [3, 2], "key 1 has never signed"
    soon = second.with_new_key(START + timedelta(days=1), LIFE)
    assert accepted(soon) == [4, 3, 2], "tokens of key 2 are valid until eight days after key 3 was made"
    later = soon.with_new_key(START + LIFE, LIFE)
    assert accepted(later) == [5, 4, 3]
    assert accepted(later.with_new_key(START + 3 * LIFE, LIFE)) == [6, 5]
    assert accepted(later.with_new_key(START + LIFE, timedelta(0))) == [6]
    assert len(later.signing_keys) == 5
    assert later.model_validate_json(later.model_dump_json(exclude_none=True)) == later


def test_tokens_of_a_key_that_is_no_longer_accepted_are_refused() -> None:
    before = Credentials.make()
    old = token(Keyring(keys(before)))
    after = before.with_new_key(START, LIFE)
    ring = Keyring(keys(after))
    assert verify(ring, old, (), now=START).task == "t-1"
    assert verify(ring, token(ring), (), now=START).task == "t-1"
    with pytest.raises(Denied, match="ends after"):
        verify(ring, old, (), now=START + LIFE)
    with pytest.raises(Denied, match="signed by a key in use"):
        verify(Keyring(keys(before.with_new_key(START, timedelta(0)))), old, (), now=START)


def test_values_that_were_released_under_an_old_key_stay_released() -> None:
    before = Credentials.make()
    released = frozenset({Fingerprints(keys(before)).of("4111 1111")})
    after = before
    for day in range(0, 100, 20):
        after = after.with_new_key(START + timedelta(days=day), LIFE)
    assert accepted(after) == [7, 6]
    assert Fingerprints(keys(after)).matches("4111 1111", released)


def test_a_keyring_accepts_its_newest_key() -> None:
    retired = SigningKey.generate(1).model_copy(update={"accepted": False})
    with pytest.raises(ValueError, match="newest"):
        Keyring([retired])
