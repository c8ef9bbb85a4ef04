"""A capability is worth exactly what memory minted: it can be narrowed by its holder, and by nobody widened."""

import json
import re
from datetime import timedelta

import pytest
from access.attenuation import attenuate
from access.capability_tokens import KEYRING, NEW, NOW, OLD, appended, grant, refusal
from biscuit_auth import BiscuitBuilder, UnverifiedBiscuit
from hypothesis import example, given
from hypothesis import strategies as st

from counterpoint.guard import capabilities
from counterpoint.guard.capabilities import Access, Grant, Keyring, SigningKey, mint, unverified_grant, verify
from counterpoint.guard.policy import policy
from counterpoint.guard.rights import service_rights
from counterpoint.proto.errors import Denied

STORES = ["attempts", "chunks", "tasks", "coder_memory"]


OPERATIONS = ["read", "append", "write"]


AGENTS = ["developer", "coder-1", "coder-2", "judge"]


accesses = st.builds(Access, st.sampled_from(STORES), st.sampled_from(OPERATIONS), st.sampled_from(["", *AGENTS]))


narrowings = st.fixed_dictionaries(
    {},
    optional={
        "stores": st.sets(st.sampled_from(STORES)),
        "operations": st.sets(st.sampled_from(OPERATIONS)),
        "agents": st.sets(st.sampled_from(AGENTS)),
        "expires_at": st.integers(-60, 60).map(lambda s: NOW + timedelta(seconds=s)),
    },
)


grants = st.builds(
    Grant,
    audience=st.sampled_from(["developer", "manager"]),
    project=st.text(min_size=1, max_size=20),
    task=st.none() | st.text(min_size=1, max_size=20),
    message=st.text(min_size=1, max_size=20),
    rights=st.frozensets(st.tuples(st.sampled_from(STORES), st.sampled_from(OPERATIONS))),
    sends=st.frozensets(st.text(max_size=20), max_size=3),
    clearance=st.integers(0, 3),
    agents=st.frozensets(st.sampled_from(AGENTS)),
    expires_at=st.integers(1, 10**6).map(lambda s: NOW + timedelta(seconds=s)),
)


def written(fields: dict[str, object]) -> str:
    """A token signed by memory with these fields, whether they are a grant or not."""
    builder = BiscuitBuilder(
        "grant({root}, {grant});",
        {"root": KEYRING.newest.public_key.to_bytes(), "grant": json.dumps(fields, default=str)},
    )
    builder.set_root_key_id(NEW.id)
    return builder.build(KEYRING.newest.private_key).to_base64()


@pytest.mark.parametrize("service", ["manager", "developer", "lineage"])
def test_the_rights_of_the_policy_are_left_out_and_hold_after_a_restart(service: str) -> None:
    granted = grant(audience=service, **service_rights(policy(), service))
    token = mint(KEYRING, granted)
    assert len(token) < 700
    assert "decisions" not in UnverifiedBiscuit.from_base64(token).block_source(0)
    assert verify(Keyring([NEW, OLD]), token, [], now=NOW) == granted
    assert unverified_grant(token) == granted
    narrower = granted.model_copy(update={"rights": granted.rights - {("decisions", "read")}})
    assert verify(Keyring([NEW, OLD]), mint(KEYRING, narrower), [], now=NOW) == narrower


def test_a_token_of_the_last_release_names_all_its_rights_and_holds() -> None:
    granted = grant(audience="manager", **service_rights(policy(), "manager"))
    token = written(granted.model_dump(mode="json"))
    assert len(token) > 1_500
    assert verify(Keyring([NEW, OLD]), token, [], now=NOW) == granted
    assert unverified_grant(token) == granted


@pytest.mark.parametrize("given", [{"rights": []}, {"clearance": 3}, {"audience": "nobody"}, {"audience": ["manager"]}])
def test_a_token_that_names_some_of_its_rights_or_no_service_has_none(given: dict[str, object]) -> None:
    fields = {"audience": "developer", "project": "web", "task": None, "message": "m", "expires_at": str(NOW)} | given
    assert refusal(written(fields), keyring=Keyring([NEW, OLD])) == "malformed"


@given(grants)
def test_a_grant_comes_back_as_it_was_minted(granted: Grant) -> None:
    assert verify(KEYRING, mint(KEYRING, granted), [], now=NOW) == granted


@given(st.lists(narrowings, max_size=3), st.lists(accesses, min_size=1, max_size=4))
def test_attenuation_allows_the_intersection_of_all_blocks_and_never_changes_the_grant(
    blocks: list[dict[str, object]], requested: list[Access]
) -> None:
    token = mint(KEYRING, grant())
    for block in blocks:
        token = attenuate(token, **block)  # type: ignore[arg-type]
    allowed = all(
        access.store in block.get("stores", STORES)  # type: ignore[operator]
        and access.operation in block.get("operations", OPERATIONS)  # type: ignore[operator]
        and access.agent in {"", *block.get("agents", AGENTS)}  # type: ignore[misc]
        and block.get("expires_at", NOW + timedelta(1)) > NOW  # type: ignore[operator]
        for block in blocks
        for access in requested
    )
    if allowed:
        assert verify(KEYRING, token, requested, now=NOW) == grant()
    else:
        assert refusal(token, *requested) == "attenuated"


def test_no_bit_of_a_token_can_be_flipped() -> None:
    for token in (mint(KEYRING, grant()), attenuate(mint(KEYRING, grant()), stores=["attempts"])):
        for index, char in enumerate(token):
            for bit in range(8):
                flipped = token[:index] + chr(ord(char) ^ 1 << bit) + token[index + 1 :]
                assert refusal(flipped, Access("attempts", "read")) in {"malformed", "signature"}


@given(st.text() | st.binary().map(lambda raw: raw.hex()))
def test_text_that_is_no_token_is_malformed(text: str) -> None:
    assert refusal(text) == "malformed"
    with pytest.raises(Denied, match="malformed"):
        attenuate(text, stores=["attempts"])


@given(st.integers(-(10**7), 10**7))
@example(3600)
@example(3599)
def test_a_capability_ends_at_its_time_whether_cached_or_not(seconds: int) -> None:
    token, now = mint(KEYRING, grant()), NOW + timedelta(seconds=seconds)
    verify(KEYRING, token, [], now=NOW)
    if now < grant().expires_at:
        assert verify(KEYRING, token, [], now=now) == grant()
    else:
        assert refusal(token, now=now) == "expired"


def test_an_attenuated_end_is_checked_again_on_the_cached_token() -> None:
    token = attenuate(mint(KEYRING, grant()), expires_at=NOW + timedelta(minutes=1))
    access = Access("attempts", "read")
    verify(KEYRING, token, [access], now=NOW + timedelta(seconds=59))
    assert refusal(token, access, now=NOW + timedelta(seconds=60)) == "attenuated"


@pytest.mark.parametrize(
    "block",
    [
        'grant(hex:00, "{}");',
        'grant($root, "{}") <- grant($root, $grant);',
        'store("attempts"); operation("append"); agent("judge"); time(0);',
        'right("attempts", "append");',
        'store("attempts") <- store($store);',
        "check if true;",
        'check if store($store), {"chunks"}.contains($store) or true;',
        'check if store($store), {"chunks"}.contains($store) trusting previous;',
        "check if [1, 2].any($a -> [1, 2].any($b -> $a + $b < 0));",
    ],
)
def test_a_block_that_says_more_than_attenuations_do_is_refused(block: str) -> None:
    token = appended(attenuate(mint(KEYRING, grant()), stores=["chunks"]), block)
    assert refusal(token, Access("chunks", "read")) == "malformed"
    assert refusal(token, Access("attempts", "append")) == "malformed"


def test_forged_facts_of_an_appended_block_grant_no_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second fence: what biscuit makes of a forged block when the first lets it through."""
    monkeypatch.setattr(capabilities, "_ATTENUATION", re.compile(r"[\s\S]*"))
    forged = 'grant(hex:00, "{}"); grant($r, "{}") <- grant($r, $g); store("attempts"); operation("append"); time(0);'
    token = appended(attenuate(mint(KEYRING, grant()), stores=["chunks"], operations=["read"]), forged)
    keyring = Keyring([NEW])
    assert verify(keyring, token, [Access("chunks", "read")], now=NOW) == grant()
    assert refusal(token, Access("attempts", "read"), keyring=keyring) == "attenuated"
    assert refusal(token, Access("chunks", "append"), keyring=keyring) == "attenuated"


def test_every_access_of_a_request_is_held_against_the_attenuations() -> None:
    token = attenuate(mint(KEYRING, grant()), stores=["chunks"])
    verify(KEYRING, token, [Access("chunks", "read")], now=NOW)
    assert refusal(token, Access("chunks", "read"), Access("attempts", "read")) == "attenuated"
    assert refusal(token, Access("attempts", "read"), Access("chunks", "read")) == "attenuated"


def test_a_token_can_be_narrowed_to_legal_names_only() -> None:
    for narrowing in ("stores", "operations", "agents"):
        with pytest.raises(ValueError, match="not the name"):
            attenuate(mint(KEYRING, grant()), **{narrowing: ['a", "b']})  # type: ignore[arg-type]


def test_a_token_signed_by_a_foreign_key_is_refused_even_under_a_known_key_id() -> None:
    stranger = Keyring([SigningKey.generate(NEW.id)])
    assert refusal(mint(stranger, grant())) == "signature"
    assert refusal(attenuate(mint(stranger, grant()), stores=["chunks"])) == "signature"


def test_a_token_without_a_known_key_id_is_refused() -> None:
    bare = BiscuitBuilder('grant(hex:00, "{}");').build(KEYRING.newest.private_key).to_base64()
    assert refusal(bare) == "signature"


@pytest.mark.parametrize("block", ['grant(hex:00, "{}");', "", 'grant(hex:00, "[]"); grant(hex:01, "[]");'])
def test_a_signed_token_without_one_whole_grant_is_refused(block: str) -> None:
    builder = BiscuitBuilder(block)
    builder.set_root_key_id(NEW.id)
    assert refusal(builder.build(KEYRING.newest.private_key).to_base64()) == "malformed"
