"""Limits of capabilities: size, attenuations, cached tokens and the time of an evaluation."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from access.attenuation import attenuate
from access.capability_tokens import KEYRING, NEW, NOW, appended, grant, refusal
from biscuit_auth import AuthorizerBuilder

from counterpoint.guard import capabilities
from counterpoint.guard.capabilities import BLOCKS_MAX, TOKEN_MAX_BYTES, Access, Keyring, mint, verify
from counterpoint.proto.errors import Transient


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
