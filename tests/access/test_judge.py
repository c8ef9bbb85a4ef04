"""The judge: the policy has a verdict for everything, what is redacted is gone, what a person released passes."""

import json
import random

import pytest
from access.judging import judge_text
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.guard.capabilities import SigningKey
from counterpoint.guard.field_detector import scan_fields
from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.guard.judge import judge, problems, redacted_body, value_of
from counterpoint.guard.kinds import CLASSES, kind_name
from counterpoint.guard.policy import VERDICTS, Policy, policy
from counterpoint.memory.access.screening import Screen

PUBLIC, INTERNAL, CONFIDENTIAL, SECRET = range(4)
VALUES = {
    "secret": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "uncertain": 'clientKey = "' + "k8Vqz3Lw9Xp2Rt5Yb7Nc4Md6" + '" api',
    "financial": "4111 1111 1111 1111",
    "identity": "536-22-8145",
    "contact": "ann.lee@example.org",
    "network": "10.1.2.3",
}
values = st.sampled_from(sorted(VALUES.items()))


def test_the_policy_has_a_verdict_for_every_class_and_label() -> None:
    rules = policy()
    for kind in CLASSES:
        for label in range(len(rules.labels)):
            assert rules.verdict(kind, label) in VERDICTS


@pytest.mark.parametrize("fault", ["class", "label", "verdict", "messages"])
def test_a_policy_that_leaves_a_verdict_open_is_refused(fault: str) -> None:
    body = policy().model_dump(mode="json")
    match fault:
        case "class":
            del body["sensitive"]["verdicts"]["network"]
        case "label":
            del body["sensitive"]["verdicts"]["secret"]["internal"]
        case "verdict":
            body["sensitive"]["verdicts"]["secret"]["internal"] = "shrug"
        case "messages":
            body["sensitive"]["messages"] = "none"
    with pytest.raises(ValueError, match="sensitive"):
        Policy.model_validate(body)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("secret", ["block", "block", "block", "block"]),
        ("uncertain", ["block", "quarantine", "quarantine", "quarantine"]),
        ("financial", ["block", "redact", "redact", "redact"]),
        ("identity", ["block", "redact", "redact", "redact"]),
        ("contact", ["redact", "redact", "allow", "allow"]),
        ("network", ["redact", "allow", "allow", "allow"]),
    ],
)
def test_a_text_of_each_class_is_judged_by_its_label(kind: str, expected: list[str]) -> None:
    assert [judge_text(f"see {VALUES[kind]} there", label).verdict for label in range(4)] == expected


def test_the_verdict_is_the_highest_of_all() -> None:
    rising = ["network", "contact", "identity", "uncertain", "secret"]
    random.Random(1).shuffle(rising)
    assert judge_text("; ".join(VALUES[kind] for kind in rising), INTERNAL).verdict == "block"
    assert judge_text(f"{VALUES['contact']}; {VALUES['uncertain']}", INTERNAL).verdict == "quarantine"


@given(st.lists(values, min_size=1, max_size=4), st.sampled_from(range(4)))
def test_redacted_and_blocked_values_are_in_no_part_of_the_body(chosen: list[tuple[str, str]], label: int) -> None:
    text = "\n".join(f"line {n}: {value} and" for n, (_, value) in enumerate(chosen))
    body = {"text": text, "deep": [{"note": text}], "keys": {text: 1}, "other": "untouched"}
    judged = judge(policy(), body, ("text", "deep", "keys"), label)
    kept = json.dumps(judged.body)
    for kind, value in chosen:
        verdict = policy().verdict(kind, label)  # type: ignore[arg-type]
        if verdict in ("redact", "block"):
            assert value.split('"')[-2 if '"' in value else 0] not in kept
    again = judge(policy(), judged.body, ("text", "deep", "keys"), label)
    assert again.verdict in ("allow", "quarantine")
    assert again.body == judged.body
    everything = redacted_body(policy(), body, ("text", "deep", "keys"), label)
    assert judge(policy(), everything, everything, label).verdict == "allow"


def test_quarantined_values_stay_readable_for_a_person() -> None:
    judged = judge_text(f"{VALUES['uncertain']}, {VALUES['identity']}", INTERNAL)
    assert judged.verdict == "quarantine"
    assert VALUES["uncertain"] in judged.body["text"]
    assert VALUES["identity"] not in judged.body["text"]


def test_ids_of_records_are_blocked_and_never_redacted() -> None:
    body = {"task": {"task_id": "5105105105105100", "context": {"customer": "5105105105105100"}}}
    judged = judge(policy(), body, ["task"], INTERNAL)
    assert judged.verdict == "block"
    assert [found.path for found in judged.refused] == [("task", "task_id")]
    assert judge(policy(), {"task": {"context": body["task"]["context"]}}, ["task"], INTERNAL).verdict == "redact"


def test_a_key_that_holds_a_secret_is_named_nowhere() -> None:
    body = {"context": {VALUES["secret"]: {"password": "hunter2!"}}}
    told = problems(body, scan_fields(body, ["context"]))
    assert len(told) == 2
    assert VALUES["secret"] not in repr(told)
    assert "hunter2!" not in repr(told)
    assert told[0].field == "context.[redacted:github_token]"


class TestFingerprints:
    def test_fingerprints_are_keyed_short_and_equal_for_equal_values(self) -> None:
        one, other = (Fingerprints([SigningKey.generate(1)]) for _ in range(2))
        assert one.of("a") == one.of("a")
        assert one.of("a") != one.of("b")
        assert one.of("a") != other.of("a")
        assert len(one.of("a")) == 16

    def test_fingerprints_of_an_older_key_are_recognised(self) -> None:
        old, new = SigningKey.generate(1), SigningKey.generate(2)
        known = frozenset({Fingerprints([old]).of("a")})
        assert Fingerprints([new, old]).matches("a", known)
        assert not Fingerprints([new]).matches("a", known)

    @given(values, st.sampled_from(["", "\u200b", "\u00ad"]))
    def test_a_released_value_passes_however_it_is_disguised_and_no_other_does(
        self, chosen: tuple[str, str], disguise: str
    ) -> None:
        kind, value = chosen
        label = PUBLIC
        prints = Fingerprints([SigningKey.generate(1)])
        body = {"text": f"see {value[:6]}{disguise}{value[6:]} there"}
        (found,) = scan_fields(body, ["text"])
        screen = Screen(prints, frozenset({prints.of(value_of(body, found))}))
        assert screen.judge(policy(), body, ["text"], label).verdict == "allow"
        assert screen.judge(policy(), {"text": f"see {value} there"}, ["text"], label).verdict == "allow"
        others = {"text": " / ".join(other for name, other in VALUES.items() if name != kind)}
        assert screen.judge(policy(), others, ["text"], label).verdict == "block"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("aws_access_key", "an AWS access key"),
        ("github_token", "a github token"),
        ("card", "a payment card number"),
        ("us_ssn", "a US SSN"),
        ("iban", "an IBAN"),
        ("uri_password", "a password in an address"),
        ("email", "an e-mail address"),
        ("ip_address", "an IP address"),
        ("jwt", "a JWT"),
        ("uk_nhs", "a UK NHS"),
        ("mac_address", "a MAC address"),
    ],
)
def test_a_kind_is_named_as_people_say_it(kind: str, words: str) -> None:
    assert kind_name(kind) == words
