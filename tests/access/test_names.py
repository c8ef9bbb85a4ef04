"""Names are kept whole when they hold no secret; from others only the secret goes, and equal names stay equal."""

import hmac
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from flows.planted_secrets import Mint

from counterpoint.guard.detector import scan
from counterpoint.guard.names import (
    has_secret,
    printable_paths,
    redact_body_names,
    redact_name,
    replace_texts,
    texts_with_secrets,
)
from counterpoint.proto.tasks import JobRef, SubmitTask, Target

ROOT = Path(__file__).parents[2]
KEY = "AKIA" + "Z7QF3MPLKD2WXYTB"
TOKEN = "ghp_" + "016C7hXz3mR9tQ2wYbLkD8vNcJ5sFpA4eG1u"
PASSWORD = "hV7q2Lx9" + "Zt4wRk8p"
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>)\]`]+")


def fingerprint(value: str) -> str:
    """Sixteen hex digits under a key of the tests."""
    return hmac.new(b"a key", value.encode(), "sha256").hexdigest()[:16]


def redacted(value: str) -> str:
    return redact_name(value, fingerprint)


@pytest.mark.parametrize(
    ("url", "left"),
    [
        (f"https://robot:{PASSWORD}@git.internal/etl.git", "https://git.internal/etl.git"),
        (f"https://{TOKEN}@github.com/a/b", "https://github.com/a/b"),
        (f"postgres://etl:{PASSWORD}@db:5432/orders?sslmode=require", "postgres://db:5432/orders?sslmode=require"),
        (f"jdbc:postgresql://db/orders?user=etl&password={PASSWORD}", "jdbc:postgresql://db/orders?user=etl"),
        (f"http://ci/log?token={PASSWORD}&try=2#end", "http://ci/log?try=2#end"),
        (f"http://ci/log?try=2&token={PASSWORD}", "http://ci/log?try=2"),
        (f"http://ci/log?a=1&token={PASSWORD}&b=2", "http://ci/log?a=1&b=2"),
        (f"http://ci/log?token={PASSWORD}", "http://ci/log"),
        (f"http://ci/#access_token={PASSWORD}&state=1", "http://ci/#state=1"),
        ("https://a.example/c?sv=1&sig=Zm9vQmFyYmF6UXV4MTIzNDU2%3D&se=2", "https://a.example/c?sv=1&se=2"),
        (f"s3://b/k?AWSAccessKeyId={KEY}&Signature=vjbyPxybdZaNmGa%2ByT272YEAiv4%3D&Expires=1", "s3://b/k?Expires=1"),
    ],
)
def test_credentials_are_cut_out_of_urls_and_the_rest_stays(url: str, left: str) -> None:
    assert redacted(url) == left
    assert redacted(f"see {url}") == f"see {left}"


@pytest.mark.parametrize(
    "form",
    [
        "{uuid}",
        "task:{uuid}",
        "tasks/{uuid}",
        "counterpoint/{uuid}",
        "job:counterpoint/{uuid}",
        "dataset:counterpoint/tasks/{uuid}",
        "dataset:counterpoint/chunks/doc-{hash}-00009",
        "data-{hash}",
        "request:{hash}{hash}",
    ],
)
def test_an_id_that_the_services_make_has_no_finding_and_is_not_scanned(form: str) -> None:
    draw = random.Random(form)
    for _ in range(500):
        name = form.format(uuid=UUID(int=draw.getrandbits(128)), hash=f"{draw.getrandbits(128):032x}")
        assert scan(name) == ()
        with patch("counterpoint.guard.names.scan", side_effect=AssertionError):
            assert redacted(name) == name


def test_a_secret_in_the_path_of_a_url_or_in_a_name_leaves_its_fingerprint() -> None:
    tag = f"[redacted:aws_access_key:{fingerprint(KEY)}]"
    assert redacted(f"s3://bucket/{KEY}/daily") == f"s3://bucket/{tag}/daily"
    assert redacted(f"etl.{KEY}") == f"etl.{tag}"
    assert redacted(f"team {KEY}") == f"team {tag}"
    assert redacted("etl." + KEY[:-1] + "A") != redacted(f"etl.{KEY}")


def test_a_redacted_name_holds_no_secret_and_is_stable() -> None:
    mint = Mint(7)
    for turn in range(300):
        secret = mint.secret()
        for form in ("{}", "{}/daily", "team:{}") if turn % 14 < 10 else ("{}",):
            name = redacted(form.format(secret.text))
            assert secret.needle not in name
            assert redacted(name) == name
            assert not has_secret(f"The job {name} failed; see {name}.")


def test_a_fingerprint_depends_on_the_key() -> None:
    other = redact_name(KEY, lambda value: hmac.new(b"another key", value.encode(), "sha256").hexdigest()[:16])
    assert other != redacted(KEY)


@pytest.mark.parametrize(
    "name",
    [
        "ann.lee@example.org",
        "postgres://10.1.2.3:5432",
        "git@github.com:acme/etl.git",
        "http://airflow:8080/log?execution_date=2026-11-20T00%3A00%3A00&task_id=load&map_index=-1",
        "scheduled__2026-11-20T00:00:00+00:00",
        "1697030400123",
        "9434765919",
        "orders.4111111111111111",
        "s3://bucket/token/key=orders/password/part-0001.parquet",
        "01a20276-b2ef-7d2e-be56-8ebfd6363fcc",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "https://example.com/?code=orders&state=open&sig=none",
        "postgresql://airflow:airflow@postgres/airflow",
    ],
)
def test_names_of_people_machines_runs_and_files_stay(name: str) -> None:
    assert redacted(name) == name


def test_no_name_and_no_url_of_the_examples_changes() -> None:
    names = set(_names())
    assert len(names) > 4000
    assert sum("://" in name for name in names) > 200
    changed = {name for name in names if redacted(name) != name}
    assert changed == {"card 4111 1111 1111 1111 was declined"}


def _names() -> Iterator[str]:
    for folder in ("examples", "tests/data/lineage", "proto/examples"):
        for path in sorted((ROOT / folder).rglob("*.json*")):
            text = path.read_text()
            yield from _URL.findall(text)
            for part in text.splitlines() if path.suffix == ".jsonl" else (text,):
                yield from (name for name in _texts(_json(part)) if len(name) <= 300 and "\n" not in name)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, inner in value.items():
                yield from (key, *_texts(inner))
        case list():
            for inner in value:
                yield from _texts(inner)


def test_unknown_fields_are_named_unless_the_name_holds_a_secret() -> None:
    assert printable_paths(["prioritty", "target.jobb"]) == ("prioritty", "target.jobb")
    assert printable_paths(["prioritty", f"context.{KEY}", KEY]) == (
        "prioritty",
        "(2 more, not named: what looks like a secret is in the name)",
    )
    assert printable_paths(["budget.card 4148481527566001"]) == (
        "(1 more, not named: what looks like a secret is in the name)",
    )


def test_all_fields_of_a_body_but_its_texts_are_redacted_as_names() -> None:
    body = {"text": KEY, "job": {"name": KEY, "n": 4111111111111111}, "owners": [KEY, "etl"], "facts": {KEY: True}}
    tag = f"[redacted:aws_access_key:{fingerprint(KEY)}]"
    copy, changed = redact_body_names(body, ("text",), fingerprint)
    assert copy == {
        "text": KEY,
        "job": {"name": tag, "n": 4111111111111111},
        "owners": [tag, "etl"],
        "facts": {tag: True},
    }
    assert changed == (("job", "name"), ("owners",), ("facts", KEY))
    copy, changed = redact_body_names({"facts": {"db_password": PASSWORD}}, (), fingerprint)
    assert copy == {"facts": {"db_password": f"[redacted:assignment:{fingerprint(PASSWORD)}]"}}


def test_the_names_of_a_value_are_replaced_and_the_rest_is_itself() -> None:
    task = SubmitTask(
        kind="question", description="Why?", target=Target(job=JobRef(namespace="etl", name=KEY), paths=(KEY, "a"))
    )
    assert texts_with_secrets(task) == {KEY}
    other = replace_texts(task, {KEY: "x"})
    assert other.target == Target(job=JobRef(namespace="etl", name="x"), paths=("x", "a"))
    assert replace_texts(task, {"nothing": "x"}) is task


def test_a_body_of_known_names_is_judged_without_a_copy_and_is_not_the_same_object() -> None:
    body = {"job": {"name": "orders.load", "owners": ["ann@acme.test"]}, "text": PASSWORD, "version": 3}
    assert redact_body_names(body, ("text",), fingerprint) == (body, ())
    with patch("counterpoint.guard.names.redact_name", side_effect=AssertionError("judged again")):
        again, changed = redact_body_names(body, ("text",), fingerprint)
    assert (again, changed) == (body, ())
    assert again is not body


@pytest.mark.parametrize("key", ["password", KEY])
def test_a_known_name_is_redacted_where_its_key_makes_it_a_secret(key: str) -> None:
    body = {"a": [{"note": "h7q2Lx9"}]}
    assert redact_body_names(body, (), fingerprint) == (body, ())
    assert redact_body_names(body, (), fingerprint) == (body, ())
    redacted_now, changed = redact_body_names({"a": [{key: "h7q2Lx9"}]}, (), fingerprint)
    assert changed
    assert redacted_now["a"] != [{key: "h7q2Lx9"}]
