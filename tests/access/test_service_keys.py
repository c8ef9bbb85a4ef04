"""Keys of services: the committed rules of gitleaks are honoured in all that does not need a file's path."""

import base64
from importlib.resources import files

import pytest

from counterpoint.guard.detector import scan
from counterpoint.guard.gitleaks import gitleaks_rules
from counterpoint.guard.keys import find_keys
from counterpoint.guard.rule import Allowlist, Rule

DRAWN = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_the_rules_are_there_with_their_licence_and_origin() -> None:
    beside = files("counterpoint.guard").joinpath("gitleaks_rules")
    assert "MIT License" in beside.joinpath("LICENSE").read_text()
    assert "github.com/gitleaks/gitleaks" in beside.joinpath("ORIGIN.md").read_text()
    assert len(gitleaks_rules()) > 200


@pytest.mark.parametrize("rule", gitleaks_rules(), ids=lambda rule: rule.kind)
def test_every_rule_can_be_tried_and_has_keywords(rule: Rule) -> None:
    assert rule.keywords
    assert list(rule.find(b" ".join(rule.keywords))) == [] or rule.entropy == 0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("glpat-" + DRAWN[:20], "gitlab_pat"),
        ("npm_" + DRAWN.lower(), "npm_access_token"),
        ("SONAR_TOKEN=sqp_" + "0123456789abcdef" * 2 + "01234567", "sonar_api_token"),
        ("bot 7213808860:AAH" + DRAWN[:32], "telegram_token"),
        ("0123456789abcdef0123456789abcdef-us12", "mailchimp_key"),
    ],
)
def test_a_key_is_found_under_its_kind(text: str, kind: str) -> None:
    assert kind in {found for found, _ in find_keys(text.encode())}


def test_a_rule_applies_entropy_group_and_allowlists() -> None:
    rule = Rule("k", (b"k=",), rb"(k)=([a-z0-9]+)(!)?", 2.0, 2, (Allowlist("secret", (rb"^known",)),))
    assert list(rule.find(b"k=abcdefgh k=aaaaaaaa k=known123")) == [(2, 10)]
    first = Rule("k", (b"k=",), rb"k=(?:(x)|([a-z]+))", 0.0, 0)
    assert list(first.find(b"k=abc")) == [(2, 5)]
    line = Rule("k", (), rb"k=[a-z]+", 0.0, 0, (Allowlist("line", (rb"^import ",)),))
    assert list(line.find(b"import k=abc\nk=abc")) == [(13, 18)]
    words = Rule("k", (), rb"k=[a-z]+", 0.0, 0, (Allowlist("secret", (), (b"sample",)),))
    assert list(words.find(b"k=mySAMPLEx".lower() + b" k=abc")) == [(12, 17)]


def test_an_id_is_no_key_though_its_name_may_mean_one() -> None:
    assert scan("credentialsId: 'ff083f76-7804-4ef1-80e4-fe975bb9141b'") == ()
    assert scan("publicToken = " + DRAWN) == ()
    assert scan("auth_token_ref=018f6b1c-4a5b-7cde-8f01-23456789abcd") == ()


def test_a_key_in_base64_is_found_one_level_deep() -> None:
    once = base64.b64encode(("token glpat-" + DRAWN[:20]).encode()).decode()
    assert [found.type for found in scan(f"data: {once}")] == ["gitlab_pat"]
