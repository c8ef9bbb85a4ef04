"""Terms of a text: identifiers keep their form, words are prepared for stemming."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.memory.search.terms import MAX_WORD_CHARS, terms


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("task clean_orders failed", "clean_orders"),
        ("see airflow.providers.http", "airflow.providers.http"),
        ("ORA-12170: timeout", "ora-12170"),
        ("code 0x80070005", "0x80070005"),
        ("at 10.0.0.53:389", "10.0.0.53:389"),
        ("at 10.0.0.53:389", "10.0.0.53"),
        ("in /opt/dags/clean_orders.py:12", "opt/dags/clean_orders.py"),
        ("in /opt/dags/clean_orders.py:12", "clean_orders.py"),
        (r"in C:\dags\clean_orders.py", "clean_orders.py"),
        ("mail ops@example.com", "ops@example.com"),
        ("the ＥＣＯＮＮ_reset", "econn_reset"),
    ],
)
def test_identifiers_codes_paths_and_addresses_keep_their_form(text: str, exact: str) -> None:
    assert exact in terms(text).exact


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("task clean_orders failed", ("clean_orders",)),
        ("ORA-12170: timeout", ("ora-12170",)),
        ("HttpHook or writeBoolean", ("httphook", "writeboolean")),
        ("a well-known post-mortem, and/or e.g. the 2nd at 8am of python3 and utf-8", ()),
        ("port 389 of 10.0.0.53:389", ("10.0.0.53:389", "10.0.0.53")),
    ],
)
def test_only_exact_forms_outside_prose_are_names(text: str, names: tuple[str, ...]) -> None:
    assert terms(text).names == names


def test_plain_words_are_not_exact_forms() -> None:
    assert terms("Check the firewall first, then 12 hosts.").exact == ()


def test_words_in_humps_are_found_whole_and_by_their_parts() -> None:
    assert terms("HTTPServer writeBoolean").words == "httpserver http server writeboolean write boolean"


@pytest.mark.parametrize("quote", ['"{}"', "'{}'", "`{}`", "“{}”"])
def test_quoted_strings_of_several_words_are_phrases(quote: str) -> None:
    assert terms("says " + quote.format("Name not known")).phrases == ("name not known",)


def test_apostrophes_quote_nothing() -> None:
    assert terms("the host's resolver doesn't answer the pod's query").phrases == ()


@given(st.text())
def test_any_text_gives_words_that_postgresql_can_hold(text: str) -> None:
    found = terms(text)
    held = [*found.words.split(), *found.exact]
    assert all(0 < len(word) <= MAX_WORD_CHARS and "\x00" not in word for word in held)
    "".join(held).encode()


@given(st.text())
def test_the_same_text_gives_the_same_terms(text: str) -> None:
    assert terms(text) == terms(text)
