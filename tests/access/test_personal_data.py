"""Numbers of persons, accounts, contacts and machines: found by form and check, and nothing that looks like them."""

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.guard.detector import scan
from counterpoint.guard.finance import is_base58_address, is_bech32_address, is_ethereum_address, is_iban
from counterpoint.guard.identities import (
    is_es_nif,
    is_in_aadhaar,
    is_pl_pesel,
    is_sg_nric,
    is_uk_nhs,
    is_us_itin,
    is_us_ssn,
)
from counterpoint.guard.keccak import keccak_256


def kinds(text: str) -> list[str]:
    return [finding.type for finding in scan(text)]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("iban DE89 3704 0044 0532 0130 00, due", "iban", "DE89 3704 0044 0532 0130 00"),
        ("row 7: GB82WEST12345698765432 amount 12.00", "iban", "GB82WEST12345698765432"),
        ("to 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", "bitcoin_address", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"),
        ("ssn=536-22-8145", "us_ssn", "536-22-8145"),
        ("the SSN is 536228145", "us_ssn", "536228145"),
        ("NHS number 943 476 5919", "uk_nhs", "943 476 5919"),
        ("DNI 12345678Z", "es_nif", "12345678Z"),
        ("FIN S1234567D was seen", "sg_nric", "S1234567D"),
        ("aadhaar 2341-2341-2346", "in_aadhaar", "2341-2341-2346"),
        ("PESEL: 44051401359", "pl_pesel", "44051401359"),
        ("LDAP bind failed for s.kim+ops@corp.example: denied", "email", "s.kim+ops@corp.example"),
        ("alert contact +49 30 901820 acknowledged", "phone", "+49 30 901820"),
        ("call me at 0494 92 82 32 today", "phone", "0494 92 82 32"),
        ("paged (415) 555-0132", "phone", "(415) 555-0132"),
        ("gateway 10.20.0.3 is down", "ip_address", "10.20.0.3"),
        ("link fe80::1 on eth0", "ip_address", "fe80::1"),
        ("[2001:db8::1]:8080 refused", "ip_address", "2001:db8::1"),
        ("mac 00:1A:2B:3C:4D:5E joined", "mac_address", "00:1A:2B:3C:4D:5E"),
    ],
)
def test_it_is_found_at_its_place(text: str, kind: str, value: str) -> None:
    (found,) = scan(text)
    assert (found.type, text[found.start : found.end]) == (kind, value)


@pytest.mark.parametrize(
    "text",
    [
        "DE88 3704 0044 0532 0130 00",
        "LV80 bANK 0000 4351 9500 1",
        "dial tcp 172.17.246.16:6443: connect: connection refused",
        "node used 4.3.0.8 build; version 10.0.19.1; chrome/120.0.0.0; pkg-1.2.3.4.tar.gz; lib==1.2.3.4",
        "std::string f(MyClass::toString) at 08:42:54, ratio 1:2:3:4",
        "Broadcast FF:FF:FF:FF:FF:FF",
        "git clone git@github.com:acme/infra.git",
        "user@1000.service: failed; logo@2x.png",
        "xid 4431-44-2235 lsn 1/D4D118E0; seq 6792041719 pending 933651 delivered 243534860",
        "offset=2817062055923 epoch_ms=1702901077112 bytes=4078784591 pid=20251120084254",
        "[2026-09-19 08:42:54,753] run_id=scheduled__2026-03-11T00:00:00+00:00",
        "018f6b1c-4a5b-7cde-8f01-23456789abcd 9b74c9897bac770ffc029102a200c5de6b3e1b0f",
        "task 01a20276-b2ef-7d2e-be56-8ebfd6363fcc failed; digest be568ebfd6363fcc",
        "embedding=[-0.789848498, 0.337810693, -0.960828327]",
        'GET /v1/tasks HTTP/1.1" 200 45 1023; at 20260715Z and 20261120D',
        "ssh root@web01.prod.example.com",
        "wrote 12345678K in 1234567s",
        "ssn=000-12-3456 ssn=666-12-3456",
    ],
)
def test_ordinary_log_lines_hold_no_personal_data(text: str) -> None:
    assert kinds(text) == []


@pytest.mark.parametrize(
    ("right", "check"),
    [
        ("GB82WEST12345698765432", is_iban),
        ("NO9386011117947", is_iban),
        ("4010232137", is_uk_nhs),
        ("12345678Z", is_es_nif),
        ("X1234567L", is_es_nif),
        ("S1234567D", is_sg_nric),
        ("234123412346", is_in_aadhaar),
        ("44051401359", is_pl_pesel),
    ],
)
def test_a_check_refuses_every_other_last_sign(right: str, check: object) -> None:
    assert check(right)  # type: ignore[operator]
    others = "0123456789" if right[-1].isdigit() else "ABCDEFGHJKLMNPQRSTUVWXYZ"
    assert [right[:-1] + sign for sign in others if check(right[:-1] + sign)] == [right]  # type: ignore[operator]


@given(st.uuids())
def test_no_part_of_a_uuid_is_personal_data(some: uuid.UUID) -> None:
    assert kinds(f"task_id={some}, {str(some).upper()} again") == []


def test_a_number_beside_a_uuid_is_found() -> None:
    assert kinds("01a20276-b2ef-7d2e-be56-8ebfd6363fcc BE68539007547034") == ["iban"]
    assert kinds("01a20276-b2ef-7d2e-be56-8ebfd6363fcc@example.org") == ["email"]


def test_numbers_without_a_check_have_a_rule() -> None:
    assert [is_us_ssn(n) for n in ("536228145", "000228145", "666228145", "936228145", "536008145", "536220000")] == [
        True, *[False] * 5
    ]  # fmt: skip
    assert [is_us_itin(n) for n in ("911701234", "911891234", "811701234")] == [True, False, False]


def test_addresses_of_coins_are_told_by_their_checksums() -> None:
    assert is_base58_address("3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy")
    assert not is_base58_address("3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLz")
    assert is_bech32_address("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4")
    assert not is_bech32_address("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t5")
    assert is_ethereum_address("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")
    assert not is_ethereum_address("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeaED")
    assert keccak_256(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert keccak_256(b"x" * 136) != keccak_256(b"x" * 135)


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_random_lines_of_a_log_are_left_alone(seed: int, count: int) -> None:
    draw = random.Random(seed)
    lines = (
        f"{draw.randint(10, 28)}:{draw.randint(10, 59)}:{draw.randint(10, 59)} task {draw.getrandbits(33)} took"
        f" {draw.random():.6f}s of {draw.getrandbits(20)} at 10.0.{draw.randint(0, 255)}.1:{draw.randint(1024, 65535)}"
        for _ in range(count)
    )
    assert kinds("\n".join(lines)) == []


@pytest.mark.parametrize("name", ["phone", "home_phone", "contact.mobile"])
def test_a_field_name_decides_the_kind_of_its_value(name: str) -> None:
    from counterpoint.guard.field_detector import scan_fields

    body = {"context": {name: "374 780 163", "offset": "374 780 163"}}
    assert [(found.path, found.finding) for found in scan_fields(body, ["context"])] == [
        (("context", name), scan("my phone 374 780 163")[0].__class__("phone", 0, 11))
    ]


@pytest.mark.parametrize("digits", ["４１１１１１１１１１１１１１１１", "٤١١١١١١١١١١١١١١١", "4111–1111–1111–1111"])
def test_digits_and_dashes_of_other_scripts_hide_nothing(digits: str) -> None:
    assert kinds(f"card {digits}") == ["card"]


@pytest.mark.parametrize("name", ["time", "offset", "total_count"])
def test_an_account_number_under_the_name_of_a_counter_is_found(name: str) -> None:
    from counterpoint.guard.field_detector import scan_fields

    body = {"context": {name: "DE89370400440532013000", f"{name}_ms": "4111111111111111"}}
    found = {found.finding.type: found.finding.confirmed for found in scan_fields(body, ["context"])}
    assert found == {"iban": True, "card": False}
