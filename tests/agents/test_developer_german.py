"""German questions, failures and pages."""

import pytest
from agents.section_pages import answered

from counterpoint.developer.language.german import borrowed_words, english, english_words, is_german, separated_verbs
from counterpoint.developer.language.question_terms import question_terms

KEEPING = """# Suche

## Aufbewahrung

Die Suchprotokolle werden 45 Tage aufbewahrt.

## Platten

Die Platten der Knoten werden nachts geprüft.
"""


def test_german_verb_is_recognised_although_its_prefix_ends_the_clause() -> None:
    question = "Wie lange bewahren wir Suchprotokolle auf?"
    terms = question_terms(question, [])
    assert terms.words_in("Die Suchprotokolle werden 45 Tage aufbewahrt.") >= {"aufbewahr", "suchprotokoll"}
    assert "keep" in (english(question) or "")
    assert separated_verbs("Wer schaltet die Knoten ab, und wann?") == {"schaltet": "abschalten"}
    assert separated_verbs("Die Knoten stehen auf dem Tisch. Wo geht es zu?") == {}
    assert separated_verbs("Der Abgleich bricht nach zwei Stunden ab.") == {"bricht": "abbrechen"}
    assert separated_verbs("Der Export schlug heute fehl") == {"schlug": "fehlschlagen"}
    assert separated_verbs("Warum bleibt der Dienst stehen?") == {"bleibt": "stehenbleiben"}
    assert "cancel" in (english("Warum bricht die Kopie der Sicherung nachts ab?") or "")
    text = answered(question, ("suche.md", KEEPING))
    assert text.startswith("Die Suchprotokolle werden 45 Tage aufbewahrt.")


@pytest.mark.parametrize(
    ("question", "said"),
    [("Wieso wird der Broker ständig gekillt?", "The broker is killed by the kernel."),
     ("wie resette ich den zähler", "Reset it with one command."),
     ("der abgleich failt seit gestern, warum", "It fails when the disk is full.")],
)  # fmt: skip
def test_borrowed_verb_in_a_german_form_is_the_english_one(question: str, said: str) -> None:
    assert question_terms(question, []).words_in(said)


def test_known_german_word_is_no_borrowed_verb() -> None:
    assert borrowed_words("gestartet") == frozenset()
    assert borrowed_words("gecrasht") >= {"crash"}


def test_german_question_is_answered_from_english_pages() -> None:
    question = "Darf ich den Replication-Slot löschen, während die Replica steht?"
    assert is_german(question)
    assert "delete" in (english(question) or "")
    assert "Never drop the slot" in answered(question)
    sought = question_terms("Darf ich den Slot löschen?", [])
    assert sought.words_in("Delete no slot.") == sought.synonyms.keys()


@pytest.mark.parametrize(
    "text", ["job kam trotz retry nie an", "deployment hatte vorhin timeouts", "dump war sogar leer"]
)
def test_terse_german_is_known_by_its_particles(text: str) -> None:
    assert is_german(text)


def test_english_is_not_taken_for_german() -> None:
    assert english("Is it OK to drop the slot when a replica is down?") is None
    assert english_words("Aufbewahrungsfrist")


def test_german_forms_are_told_apart_that_share_a_stem() -> None:
    assert "backup" in english_words("Sicherungen")
    assert "backup" in english_words("sichern")
    assert english_words("sicher")[0] == "safe"
