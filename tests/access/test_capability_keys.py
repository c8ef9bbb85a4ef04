"""Keys of capabilities: their rotation, and the revocation of tokens."""

import pytest
from access.attenuation import attenuate
from access.capability_tokens import KEYRING, NEW, NOW, grant, refusal

from counterpoint.guard.capabilities import Access, Keyring, SigningKey, mint, revocation_ids, verify


def test_rotation_keeps_the_previous_key_and_refuses_the_one_before() -> None:
    first, second, third = (SigningKey.generate(key_id) for key_id in (7, 8, 9))
    before, during, after = Keyring([first]), Keyring([second, first]), Keyring([third, second])
    old, new = mint(before, grant()), mint(during, grant())
    assert verify(during, old, [], now=NOW) == grant()
    assert verify(after, new, [], now=NOW) == grant()
    assert refusal(old, keyring=after) == "signature"
    assert refusal(new, keyring=before) == "signature"


def test_a_keyring_needs_keys_with_ids_of_their_own() -> None:
    with pytest.raises(ValueError, match="same id"):
        Keyring([NEW, SigningKey.generate(NEW.id)])
    with pytest.raises(ValueError, match="needs a key"):
        Keyring([])


def test_a_signing_key_is_read_from_settings_and_never_printed() -> None:
    read = SigningKey.model_validate({"id": 2, "private": NEW.private.get_secret_value()})
    assert verify(Keyring([read]), mint(KEYRING, grant()), [], now=NOW) == grant()
    assert NEW.private.get_secret_value() not in repr(NEW) + NEW.model_dump_json()


def test_revoking_a_minted_token_refuses_all_that_was_made_from_it_and_nothing_else() -> None:
    token, other = mint(KEYRING, grant()), mint(KEYRING, grant())
    child = attenuate(token, stores=["chunks"])
    access = Access("chunks", "read")
    verify(KEYRING, child, [access], now=NOW)
    revoked = {revocation_ids(token)[0]}
    assert refusal(token, access, revoked=revoked) == "revoked"
    assert refusal(child, access, revoked=revoked) == "revoked"
    assert verify(KEYRING, other, [access], now=NOW, revoked=revoked) == grant()


def test_revoking_an_attenuated_token_leaves_the_one_it_was_made_from() -> None:
    token = mint(KEYRING, grant())
    child = attenuate(token, stores=["chunks"])
    revoked = set(revocation_ids(child)) - set(revocation_ids(token))
    assert refusal(child, Access("chunks", "read"), revoked=revoked) == "revoked"
    assert verify(KEYRING, token, [], now=NOW, revoked=revoked) == grant()
