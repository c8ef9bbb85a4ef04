"""The write filter on documentation, logs and dressed-up secrets: pages are kept, counters stay, secrets are found."""

import random

import pytest
from access.judging import judge_text
from access.sensitive_lines import DIGITS, DOCUMENTATION, LETTERS, LOGS, SECRETS, Line, lines
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.guard.connections import find_passwords, is_example_host
from counterpoint.guard.detector import scan
from counterpoint.guard.field_detector import scan_fields
from counterpoint.guard.judge import judge
from counterpoint.guard.kinds import class_of
from counterpoint.guard.mailboxes import is_nobody
from counterpoint.guard.placeholders import is_placeholder
from counterpoint.guard.policy import policy
from counterpoint.guard.randomness import is_random

INTERNAL = 1
REFUSED = ("block", "quarantine")
HELD = ("secret", "uncertain")
SEEDS = range(3)


def share(of: list[Line], wrong: list[Line]) -> float:
    return len(wrong) / len(of)


def ids(some: list[Line]) -> list[str]:
    return [line.id for line in some]


@pytest.mark.parametrize("split", ["dev", "test", "later", "fresh"])
def test_a_page_is_not_refused_for_its_placeholders(split: str) -> None:
    innocent = [line for line in lines(DOCUMENTATION, split) if line.kind not in HELD]
    refused = [line for line in innocent if judge_text(line.text, INTERNAL).verdict in REFUSED]
    assert share(innocent, refused) <= 0.01, ids(refused)


@pytest.mark.parametrize("split", ["dev", "test", "later", "fresh"])
def test_an_address_in_a_page_is_redacted_when_it_is_a_persons(split: str) -> None:
    some = [line for line in lines(DOCUMENTATION, split) if line.kind not in HELD]
    wrong = [line for line in some if (judge_text(line.text, INTERNAL).verdict == "redact") != (line.kind == "contact")]
    assert ids(wrong) == []


@pytest.mark.parametrize("split", ["dev", "test"])
def test_counters_in_logs_are_allowed(split: str) -> None:
    some = [line for seed in SEEDS for line in lines(LOGS, split, seed) if line.kind == "none"]
    wrong = [line for line in some if judge_text(line.text, INTERNAL).verdict != "allow"]
    assert share(some, wrong) <= 0.03, ids(wrong)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_numbers_that_a_line_names_are_found(split: str) -> None:
    some = [line for seed in SEEDS for line in lines(LOGS, split, seed) if line.kind != "none"]
    missed = [
        line
        for line in some
        if line.kind not in {class_of(found.finding.type) for found in judge_text(line.text, INTERNAL).findings}
    ]
    assert ids(missed) == []


@pytest.mark.parametrize("split", ["dev", "test", "fresh"])
def test_a_secret_is_found_however_it_is_dressed(split: str) -> None:
    some = [line for seed in SEEDS for line in lines(SECRETS, split, seed)]
    missed = [line for line in some if judge_text(line.text, INTERNAL).verdict not in REFUSED]
    assert share(some, missed) <= 0.01, ids(missed)


def test_a_weak_password_at_a_real_host_is_at_least_uncertain() -> None:
    weak = [line for split in ("dev", "test") for line in lines(SECRETS, split) if line.kind == "uncertain"]
    assert {judge_text(line.text, INTERNAL).verdict for line in weak} <= {"quarantine", "block"}


@pytest.mark.parametrize(
    "text",
    [
        "'password': \"password\"",
        "amqp://myuser:mypassword@localhost",
        "client_secret = <<CLIENT_SECRET>>",
        "PrivateKey(key, password=key_password)",
        "Authorization: Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
        "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
        "IDENTIFIED BY PASSWORD '*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19'",
    ],
)
def test_the_placeholders_that_were_refused_are_kept(text: str) -> None:
    assert scan(text) == ()


DRESSES = (
    "password=example{}",
    "password={}_example",
    "password=<{}>",
    "password=your-{}",
    "password=changeme{}",
    'password="placeholder {}"',
    "password=${{PASSWORD:-{}}}",
    "https://example:{}@example.com/",
    "# placeholder, not real\napi_key = {}",
    "example_secret: {}  # dummy",
    "password=get('{}')",
    "password={{{{ '{}' }}}}",
)


@pytest.mark.parametrize("dress", DRESSES)
def test_words_for_an_example_hide_no_random_value(dress: str) -> None:
    draw = random.Random(dress)
    values = ["".join(draw.choice(LETTERS + DIGITS) for _ in range(24)) for _ in range(60)]
    values = [value for value in values if any(map(str.isdigit, value))]
    missed = [value for value in values if judge_text(dress.format(value), INTERNAL).verdict not in REFUSED]
    assert len(missed) <= len(values) * 0.05, missed


@pytest.mark.parametrize("length", [8, 10, 12, 16, 20])
def test_random_letters_are_no_name_of_a_type(length: int) -> None:
    draw = random.Random(length)
    values = ["".join(draw.choice(LETTERS) for _ in range(length)) for _ in range(2000)]
    missed = [value for value in values if judge_text(f"password: {value}", INTERNAL).verdict not in REFUSED]
    assert len(missed) <= len(values) * 0.04, missed


@pytest.mark.parametrize(
    "name", ["Saml2X509Credential", "JwtAuthenticationProvider", "AWSCredentialsProvider", "SecretKeySelector"]
)
def test_the_name_of_a_type_is_a_placeholder(name: str) -> None:
    assert is_placeholder(name)


@pytest.mark.parametrize(
    "value",
    [
        "Falcon7391!",
        "Falcon1234!example",
        "S3cr3tFalcon",
        "hunter2example",
        "Winter2024!-placeholder",
        "<Falcon7391>",
        "${P:-Falcon7391}",
    ],
)
def test_a_chosen_password_is_no_placeholder(value: str) -> None:
    assert not is_placeholder(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("postgres://app:sunshine@db.prod.acme.io/orders", "uri_word"),
        ("postgres://orders:orders@db.prod.acme.io/orders", "uri_word"),
        ("postgres://app:sunshine@example.org/orders", None),
        ("postgres://app:sunshine@192.0.2.7/orders", None),
        ("postgres://airflow:airflow@postgres/airflow", None),
        ("postgres://app:k8Vq2pzXw9Lm@localhost/orders", "uri_password"),
        ("postgres://app:${DB_PASSWORD}@db.prod.acme.io/orders", None),
    ],
)
def test_a_password_in_an_address_is_judged_by_itself_and_its_host(text: str, kind: str | None) -> None:
    assert [found for found, _ in find_passwords(text)] == ([kind] if kind else [])


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "db.example.com", "myhost", "203.0.113.9", "a.test"])
def test_hosts_of_examples(host: str) -> None:
    assert is_example_host(host)


@pytest.mark.parametrize("host", ["db.prod.acme.io", "example.acme.io", "10.0.0.7", "contest.io", "latest"])
def test_hosts_that_may_be_real(host: str) -> None:
    assert not is_example_host(host)


@pytest.mark.parametrize("name", ["oncall", "noreply", "no-reply", "platform-team", "team-orders", "data-eng", "sre2"])
def test_role_names_are_not_people(name: str) -> None:
    assert is_nobody(name, "acme.io")


@pytest.mark.parametrize(
    "line",
    [
        "| tape library | Storage team | storage@uni-ku.de |",
        "Zuständig: Team Identität, identitaet@uni-ku.de",
        "Owner: Team Storefront (Slack #storefront, storefront@laden.de)",
    ],
)
def test_the_mailbox_of_a_team_that_its_line_names_is_nobodys(line: str) -> None:
    assert scan(line) == ()
    assert scan("Storage team\nstorage@uni-ku.de")


def test_a_person_in_the_line_of_a_team_is_a_person() -> None:
    (found,) = scan("| fct_tax | Team Controlling | Jana Schulz, jana.schulz@laden.de |")
    assert found.type == "email"


@pytest.mark.parametrize("name", ["anna", "anna.support", "j.kowalczyk", "thomas_berg", "support.anna"])
def test_names_of_people_are_not_roles(name: str) -> None:
    assert not is_nobody(name, "acme.io")


@given(st.sampled_from(["offset", "bytes_read", "txid", "restart_lsn", "epoch_us"]))
def test_a_counter_under_its_key_is_let_pass_and_a_card_is_not(name: str) -> None:
    body = {"context": {name: 5105105105105100, "card_number": 5105105105105100}}
    assert judge(policy(), body, ["context"], INTERNAL).body == {
        "context": {name: 5105105105105100, "card_number": "[redacted:card]"}
    }
    assert [found.finding.type for found in scan_fields(body, ["context"])] == ["card", "card"]


def test_a_number_that_nothing_names_is_still_kept_from_the_public() -> None:
    text = "got 4111111111111111 from upstream"
    assert judge_text(text, INTERNAL).verdict == "allow"
    assert judge_text(text, 0).verdict == "block"
    assert judge_text("got card 4111111111111111", INTERNAL).verdict == "redact"
    assert judge_text("got 4111 1111 1111 1111 from upstream", INTERNAL).verdict == "redact"


@pytest.mark.parametrize(
    "word", ["generate_surrogate_key", "oauth2Token", "myPassword123", "abcdef0123456789", "ConnectionFactory"]
)
def test_words_are_not_random(word: str) -> None:
    assert not any(is_random(part) for part in word.split("_"))
