"""A capability is worth exactly what memory minted: it can be narrowed by its holder, and by nobody widened."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from access.attenuation import attenuate
from biscuit_auth import AuthorizerBuilder, Biscuit, BiscuitBuilder, BlockBuilder, UnverifiedBiscuit
from hypothesis import example, given
from hypothesis import strategies as st

from counterpoint.guard import capabilities
from counterpoint.guard.capabilities import (
    BLOCKS_MAX,
    TOKEN_MAX_BYTES,
    Access,
    Grant,
    Keyring,
    SigningKey,
    mint,
    revocation_ids,
    unverified_grant,
    verify,
)
from counterpoint.guard.policy import policy
from counterpoint.guard.rights import service_rights
from counterpoint.proto.errors import Denied, Transient

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
OLD, NEW = SigningKey.generate(1), SigningKey.generate(2)
KEYRING = Keyring([NEW, OLD])

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


def grant(**changes: object) -> Grant:
    return Grant.model_validate(
        {
            "audience": "developer",
            "project": "web",
            "task": "task-1",
            "message": "message-1",
            "rights": {("attempts", "read"), ("attempts", "append"), ("chunks", "read")},
            "sends": {"counterpoint.task.worked.v1"},
            "clearance": 2,
            "agents": {"developer", "coder-1", "coder-2"},
            "expires_at": NOW + timedelta(hours=1),
        }
        | changes
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


def refusal(token: str, *requested: Access, keyring: Keyring = KEYRING, now: datetime = NOW, **more: object) -> str:
    with pytest.raises(Denied) as refused:
        verify(keyring, token, requested, now=now, **more)  # type: ignore[arg-type]
    return refused.value.rule


def appended(token: str, block: str) -> str:
    """`token` with a block that its holder wrote by hand."""
    public_key = Keyring([NEW]).newest.public_key
    return Biscuit.from_base64(token, public_key).append(BlockBuilder(block)).to_base64()


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


def test_too_long_and_too_often_attenuated_tokens_are_refused_before_they_are_read() -> None:
    token = mint(KEYRING, grant())
    assert refusal("A" * (TOKEN_MAX_BYTES + 1)) == "malformed"
    for _ in range(BLOCKS_MAX - 1):
        token = attenuate(token, operations=["read"])
    verify(KEYRING, token, [Access("chunks", "read")], now=NOW)
    assert refusal(attenuate(token, operations=["read"])) == "malformed"


def test_tokens_minted_and_verified_are_known_again_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    genuine = Keyring._verify
    monkeypatch.setattr(Keyring, "_verify", lambda ring, token: looked.append(token) or genuine(ring, token))
    keyring = Keyring([NEW], cached=2)
    first, second = (mint(keyring, grant(message=f"message-{n}")) for n in range(2))
    for token in (first, second, first):
        assert verify(keyring, token, [], now=NOW).message == f"message-{(first, second).index(token)}"
    assert looked == []
    third = mint(keyring, grant(message="message-2"))
    for token in (third, second, second):
        verify(keyring, token, [], now=NOW)
    assert looked == [second]


def test_biscuits_own_time_limit_would_refuse_valid_tokens_on_a_busy_machine() -> None:
    """The trap: 1 ms of wall-clock time, which a thread that is not scheduled uses up."""
    limits = AuthorizerBuilder().limits()  # type: ignore[attr-defined]
    assert limits.max_time == timedelta(milliseconds=1)


def test_valid_tokens_verify_while_every_core_is_busy() -> None:
    """Other processes take the core away inside an evaluation; other threads alone do not, they wait for the GIL."""
    child = attenuate(mint(KEYRING, grant()), stores=["chunks"], agents=["coder-2"])
    access = Access("chunks", "read", "coder-2")

    def verify_often(thread: int) -> None:
        for n in range(2000):
            assert verify(KEYRING, child, [access], now=NOW + timedelta(seconds=n % 10)) == grant()

    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(verify_often, range(4)))
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()


def test_an_evaluation_out_of_time_is_transient_and_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    token = attenuate(mint(KEYRING, grant()), stores=["chunks"])
    verify(KEYRING, token, [], now=NOW)
    monkeypatch.setattr(capabilities, "_EVALUATION_TIME_LIMIT", timedelta(0))
    with pytest.raises(Transient):
        verify(KEYRING, token, [Access("chunks", "read", "in-no-time")], now=NOW)


def test_a_block_made_to_burn_time_is_not_evaluated() -> None:
    facts = " ".join(f"n({n});" for n in range(900))
    token = appended(mint(KEYRING, grant()), facts + "check if n($a), n($b), n($c), $a + $b + $c < 0")
    assert refusal(token, Access("chunks", "read")) == "malformed"
