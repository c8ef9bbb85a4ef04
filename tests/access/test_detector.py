"""The detector finds secrets and cards wherever they hide, says where and never what, and leaves other text alone."""

import base64
import json
import unicodedata
from unittest.mock import patch

import pytest
from growth import LIMIT, growth
from hypothesis import example, given
from hypothesis import strategies as st

from counterpoint.guard.cards import is_card_number, luhn
from counterpoint.guard.detector import Finding, _detect, _FindingsCache, redact, scan
from counterpoint.guard.field_detector import redact_fields, scan_fields


def drawn(alphabet: str, length: int) -> st.SearchStrategy[str]:
    """Random text with enough different signs to pass for a secret."""
    return st.text(alphabet, min_size=length, max_size=length).filter(lambda text: len(set(text)) >= length // 2)


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789"


def with_check_digit(digits: str) -> str:
    return next(digits + check for check in DIGITS if luhn(digits + check))


def jwt_of(payload: str) -> str:
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(json.dumps({"sub": payload}).encode()).decode().rstrip("=")
    return f"{header}.{body}.{'Qm9' * 14}"


def key_block_of(body: str) -> str:
    return f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"


SECRETS: dict[str, st.SearchStrategy[str]] = {
    "card": st.sampled_from(["4111", "5105", "2221", "6011", "3530"]).flatmap(
        lambda prefix: st.text(DIGITS, min_size=11, max_size=11).map(lambda rest: with_check_digit(prefix + rest))
    ),
    "aws_access_key": drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16).map("AKIA".__add__),
    "github_token": drawn(LETTERS + DIGITS, 36).map("ghp_".__add__),
    "gitlab_pat": drawn(LETTERS + DIGITS, 20).map("glpat-".__add__),
    "slack_token": drawn(LETTERS + DIGITS, 24).map("xoxb-2345678901-".__add__),
    "service_key": drawn(LETTERS + DIGITS, 40).map("sk-".__add__),
    "jwt": st.text(LETTERS, min_size=1, max_size=20).map(jwt_of),
    "private_key": drawn(LETTERS + DIGITS + "+/", 64).map(key_block_of),
}
secrets = st.one_of(*SECRETS.values())
surroundings = st.text(st.sampled_from("abc 12-:=\"'/.,\n\u200b\u00ad\ufb01é＝пароль[]{}@"), max_size=12)
passages = st.lists(
    st.one_of(
        surroundings,
        secrets,
        st.sampled_from(
            [
                *(
                    "password=",
                    "password: ",
                    "secret=",
                    "api_key: ",
                    "--token ",
                    "Bearer ",
                    "Basic ",
                    "://",
                    "https://u:",
                ),
                *("@host ", "hunter2!", "s3cr3t-Xk9fQ2mW7pLd4", "aHVudGVyMjpodW50ZXIy", "[redacted:card]", "changeme"),
            ]
        ),
    ),
    max_size=8,
).map("".join)


@pytest.mark.parametrize("kind", SECRETS)
def test_each_kind_is_found_at_its_place_in_a_line_of_a_log(kind: str) -> None:
    @given(SECRETS[kind])
    def found(secret: str) -> None:
        line = f"2025-11-20 08:42:54 INFO got {secret} from upstream"
        assert scan(line) == (Finding(kind, 29, 29 + len(secret)),)

    found()


@pytest.mark.parametrize("body", [LETTERS + DIGITS + "+/", "-".join("AbCdEfGh" * 4) * 3, "A-b" * 400])
def test_a_key_with_any_character_is_covered_to_its_end(body: str) -> None:
    block = key_block_of(LETTERS + body)
    assert scan(f"got {block} from upstream") == (Finding("private_key", 4, 4 + len(block)),)


@pytest.mark.parametrize(
    ("text", "kind", "secret"),
    [
        ("password=hunter2", "assignment", "hunter2"),
        ('{"db_password": "k8$Vq!pz"}', "assignment", "k8$Vq!pz"),
        ('{\\"password\\": \\"hunter2\\"}', "assignment", "hunter2"),
        ("MYSQL_PWD: 'x9 Tr!4 zz'", "assignment", "x9 Tr!4 zz"),
        ("export API_KEY=9f8a7c6b5d4e3f2a1b0c", "assignment", "9f8a7c6b5d4e3f2a1b0c"),
        ("client_secret := Zx8Qm2Lp9Vt4Kw7R", "assignment", "Zx8Qm2Lp9Vt4Kw7R"),
        ("deploy --token 7hG4kLp0qWz2NbX8 now", "assignment", "7hG4kLp0qWz2NbX8"),
        ("Authorization: Bearer 7hG4kLp0qWz2NbX8", "bearer", "7hG4kLp0qWz2NbX8"),
        ("Authorization: Basic dXNlcjpodW50ZXIy", "basic_auth", "dXNlcjpodW50ZXIy"),
        ("postgresql://app:k8Vqpz@db:5432/orders", "uri_password", "k8Vqpz"),
        ("redis://:k8Vqpz@cache", "uri_password", "k8Vqpz"),
        ("card 4111 1111 1111 1111 123", "card", "4111 1111 1111 1111"),
        ("on 2025-11-20 3782-822463-10005.", "card", "3782-822463-10005"),
    ],
)
def test_secrets_are_detected_by_their_surroundings(text: str, kind: str, secret: str) -> None:
    (finding,) = scan(text)
    assert (finding.type, text[finding.start : finding.end]) == (kind, secret)


@pytest.mark.parametrize(
    "text",
    [
        "password=changeme",
        "password: incorrect for user admin",
        "password=${DB_PASSWORD}",
        "password = os.environ['DB_PASSWORD']",
        "password: <your password>",
        "password=********",
        "secret: app-db-credentials-7f8d",
        "token: 018f6b1c-4a5b-7cde-8f01-23456789abcd",
        "next_page_token=none",
        "token_url: https://auth.internal/v1/token",
        "the bearer authentication-required-here",
        "postgresql://app:${PASSWORD}@db/orders",
        "https://host:8080/path@2x.png",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "AKIAIOSFODNN7EXAMPLE",
        "AWS_ACCESS_KEY_ID: AKIAXXXXXXXXXXXXXXXX",
        "ssh app@host BORG_PASSPHRASE=\\$(cat) borg mount",
        "order 4111111111111112 shipped",
        "id=x4111111111111111",
        "pi is 3.4111111111111111",
        "run_id=scheduled__2025-11-20T00:00:00+00:00 epoch_ms=1763628174753 pid=20251120084254",
        "/usr/local/lib/python3.11/site-packages/airflow/models/taskinstance.py",
        "sha256:9b74c9897bac770ffc029102a200c5de6b3e1b0f4e5d6c7a8b9c0d1e2f3a4b5c",
        "",
    ],
)
def test_text_without_a_secret_is_left_alone(text: str) -> None:
    assert scan(text) == ()


@given(st.integers(0, 10**18))
def test_luhn_refuses_every_single_wrong_digit_and_accepts_the_right_one(number: int) -> None:
    digits = with_check_digit(str(number))
    assert sum(luhn(str(number) + check) for check in DIGITS) == 1
    for index, digit in enumerate(digits):
        assert not luhn(digits[:index] + str((int(digit) + 1) % 10) + digits[index + 1 :])


@pytest.mark.parametrize(
    ("digits", "is_card"),
    [
        ("4111111111111111", True),
        ("378282246310005", True),
        ("30569309025904", True),
        ("6011111111111117", True),
        ("2223003122003222", True),
        ("4111111111111112", False),
        ("1111111111111117", False),
        ("9111111111111115", False),
        ("41111111111111", False),
    ],
)
def test_a_card_number_needs_an_issuer_a_length_and_a_check_digit(digits: str, is_card: bool) -> None:
    assert is_card_number(digits) is is_card


@given(passages)
@example("password=token=secret=7hG4kLp0qWz2NbX8")
@example("4111 1111 1111 1111 1111 1111 1111 1111")
def test_redaction_leaves_no_secret(text: str) -> None:
    assert scan(redact(text, scan(text))) == ()


@given(passages)
def test_findings_are_in_order_apart_and_inside_the_text(text: str) -> None:
    end = 0
    for finding in scan(text):
        assert end <= finding.start < finding.end <= len(text)
        end = finding.end


@given(SECRETS["card"] | SECRETS["aws_access_key"] | SECRETS["github_token"], st.data())
def test_offsets_refer_to_the_original_text_under_any_disguise(secret: str, data: st.DataObject) -> None:
    full_width = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)})
    disguised = "".join(
        data.draw(st.sampled_from([char, char.translate(full_width), char + "\u200b", "\u00ad" + char]))
        for char in secret
    )
    before, after = "ﬁrst ﷺ é\u200b ", " ﬀ end"
    (finding,) = scan(before + disguised + after)
    found = (before + disguised + after)[finding.start : finding.end]
    assert found.strip("\u200b\u00ad") == disguised.strip("\u200b\u00ad")
    plain = "".join(char for char in unicodedata.normalize("NFKC", found) if unicodedata.category(char) != "Cf")
    assert plain == secret


@given(secrets, st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]), st.sampled_from(["", "note ", "x=\n"]))
def test_one_level_of_base64_is_opened_and_the_whole_word_taken(secret: str, encode: object, before: str) -> None:
    word = encode(f"{before}{secret}".encode()).decode()  # type: ignore[operator]
    text = f"data={word} end"
    (finding,) = scan(text)
    assert text[finding.start : finding.end] == word


def test_where_findings_overlap_the_more_certain_kind_names_the_whole() -> None:
    token = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fG3iL6"
    assert scan(f"Authorization: Bearer {token}") == (Finding("github_token", 22, 62),)
    assert [finding.type for finding in scan(f"token={token}&x=1")] == ["github_token"]


def test_fields_are_searched_in_nested_values_keys_and_under_telling_names() -> None:
    key = "AKIA" + "QWERTYUIOPASDFGH"
    body = {
        "id": "4111111111111111",
        "description": f"use {key}",
        "context": {
            "hosts": ["a", {"note": f"{key}!"}],
            f"{key} rotated": 1,
            "db": {"password": "hunter2", "retries": 3, "tls": True, "card": 4111111111111111, "ratio": None},
        },
    }
    found = scan_fields(body, ["description", "context", "absent"])
    assert {(finding.path, finding.in_key, finding.finding.type) for finding in found} == {
        (("description",), False, "aws_access_key"),
        (("context", "hosts", 1, "note"), False, "aws_access_key"),
        (("context", f"{key} rotated"), True, "aws_access_key"),
        (("context", "db", "password"), False, "assignment"),
        (("context", "db", "card"), False, "card"),
    }
    assert redact_fields(body, found) == {
        "id": "4111111111111111",
        "description": "use [redacted:aws_access_key]",
        "context": {
            "hosts": ["a", {"note": "[redacted:aws_access_key]!"}],
            "[redacted:aws_access_key] rotated": 1,
            "db": {
                "password": "[redacted:assignment]",
                "retries": 3,
                "tls": True,
                "card": "[redacted:card]",
                "ratio": None,
            },
        },
    }
    assert body["description"] == f"use {key}"


leaves = passages | st.integers() | st.booleans() | st.none()
bodies = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(passages, inner, max_size=3), max_leaves=8
)


@given(bodies)
def test_a_redacted_body_has_no_secret_and_loses_no_entry(value: object) -> None:
    body = {"text": value}
    redacted = redact_fields(body, scan_fields(body, ["text"]))
    assert scan_fields(redacted, ["text"]) == ()
    assert size(redacted) == size(body)


def size(value: object) -> int:
    match value:
        case dict():
            return 1 + sum(map(size, value.values()))
        case list():
            return 1 + sum(map(size, value))
        case _:
            return 1


def test_two_secret_keys_of_one_mapping_both_stay() -> None:
    body = {"context": {"4111111111111111": "a", "5105105105105100": "b"}}
    redacted = redact_fields(body, scan_fields(body, ["context"]))
    assert redacted == {"context": {"[redacted:card]": "a", "[redacted:card]'": "b"}}


@given(secrets)
def test_a_finding_never_shows_the_value(secret: str) -> None:
    findings = scan_fields({"text": f"see {secret}"}, ["text"])
    assert findings
    assert secret not in repr(findings)


def test_verdicts_are_remembered_within_a_bound_and_without_the_text() -> None:
    verdicts = _FindingsCache(2)
    texts = ["password=hunter2", "nothing here", "4111111111111111"]
    first = [verdicts.of(text) for text in texts]
    assert verdicts.of(texts[2]) is first[2]
    assert [verdicts.of(text) for text in texts] == first
    assert len(verdicts._cached) <= 2
    assert not any(text in repr(verdicts._cached) for text in texts)


HASHES = st.sampled_from([16, 32]).flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(bytes.hex)
IDS = st.uuids().map(str) | HASHES
MADE_OF_IDS = st.builds("{}{}{}".format, st.sampled_from(["", "doc-", "job:", "data:chunks/"]), IDS, st.just("-00042"))


@given(IDS | MADE_OF_IDS)
@example("0" * 32)
@example("41111111-1111-1111-1111-111111111111")
def test_an_id_has_no_finding_and_is_not_searched(text: str) -> None:
    assert _detect(text) == ()
    with patch("counterpoint.guard.detector._detect", side_effect=AssertionError("searched")):
        assert scan(text) == ()


@pytest.mark.parametrize(
    "piece",
    [
        *("password=", "secret=token=", "eyJ", "eyJ.", "-----BEGIN PRIVATE KEY-----", "://a:", "1 ", "1", "4111-1111-"),
        *("A", "--", "--token ", "Bearer ", "ghp_", "https://u:p", "\u200b", "ﷺ", "[redacted:x]", '"key": "', "=", " "),
        *("+49 30 3115347 ", "1.1.1.1 ", "a@b.cc ", "::", "phone 12-34 ", "1-office ", "DE89 ", "078-05-1123 ", "M.a."),
    ],
)
def test_no_text_makes_the_detector_run_away(piece: str) -> None:
    """The processor time of a message made of one piece grows with its length, not its square, up to the largest."""
    assert growth(lambda size: scan(piece * (size // len(piece))), 256 * 1024) < LIMIT
