"""German questions and pages agree on a word in other forms, in compounds, and on words that name nothing."""

import pytest
from agents.section_pages import hits_of

from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.language.compounds import compounds_with, parts
from counterpoint.developer.language.german import english_words, is_everyday, is_german, separated_verbs, stem
from counterpoint.developer.language.question_terms import german_words, question_terms
from counterpoint.developer.language.words import content_words

PAGE = """# Archiv

## Aufbewahrung

Die Sicherungen werden 35 Tage aufbewahrt, danach löscht sie der Nachtlauf.

## Umzug

Vor dem Umzug sind die Warteschlangen anzuhalten und die Zähler zurückzusetzen.

## Anschlüsse

Der Abgleich hört auf dem Port 7400.
"""


@pytest.mark.parametrize(
    "forms",
    [
        "aufbewahren aufbewahrt Aufbewahrung aufzubewahren aufbewahrte",
        "zurücksetzen zurückgesetzt zurückzusetzen zurückgesetzten zuruecksetzen",
        "aktualisieren aktualisiert Aktualisierung aktualisierte",
        "sperren sperrt gesperrt gesperrte Sperre Sperrung",
        "genehmigen genehmigt Genehmigung",
        "prüfen geprüft Prüfung pruefen prüft",
        "abbrechen abzubrechen abgebrochen",
        "zugreifen zugegriffen Zugriff",
        "Läufer Laeufer Läufern",
        "Gerät Geräte Geräten Geraete",
    ],
)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.lower().split()}) == 1


@pytest.mark.parametrize("words", ["plan platte", "gehören hören", "gewähren währen", "ausgeben ausben", "gerät rat"])
def test_other_words_have_other_stems(words: str) -> None:
    one, other = words.split()
    assert stem(one) != stem(other)


def test_parts_of_a_compound_are_known_words() -> None:
    known = frozenset(map(stem, ("sicherung", "kopie", "frist", "aufbewahrung", "reichen", "räumen", "schlüssel")))
    assert parts("sicherungskopie", known) == (stem("sicherung"), stem("kopie"))
    assert parts("aufbewahrungsfrist", known) == (stem("aufbewahrung"), stem("frist"))
    assert parts("druckkontingent", known) == ()
    assert parts("durchreichen", known | {"durch"}) == parts("wegräumen", known | {"weg"}) == ()
    found = frozenset({stem("schlüsseldatei"), stem("verschlüsselung"), stem("schlüssel")})
    (compounds,) = compounds_with({stem("schlüssel")}, found, known | {stem("datei"), "ver"}).values()
    assert compounds == {stem("schlüsseldatei")}


def test_word_of_a_question_is_found_in_compounds_and_a_compound_by_its_parts() -> None:
    page = [german_words("Für das Boot ist die Gebühr des Hafens fällig.")]
    terms = question_terms("Wer zahlt die Hafengebühr?", page)
    assert terms.worth.keys() >= {stem("hafen"), stem("gebühr")}
    assert terms.missing == {stem("zahlt")}
    page = [german_words("Die Gebühr für die Müllabfuhr ist fällig.")]
    assert question_terms("Wer zahlt die Hafengebühr?", page).missing == {stem("hafen"), stem("zahlt")}
    page = [content_words("Fees of the harbour are due in May.")]
    assert question_terms("Wer zahlt die Hafengebühr?", page).missing == {stem("zahlt")}
    page = [german_words("Die Hafengebühr ist für alle Boote gleich, die in den Hafen kommen.")]
    assert not question_terms("Was ist die Gebühr?", page).missing


def test_inflected_word_of_a_question_is_not_missing() -> None:
    question = "Werden die Zähler zurückgesetzt?"
    found = hits_of(question, ("archiv.md", PAGE))
    assert max(hit.features.overlap for hit in found) > 0.9
    assert not question_terms(question, [hit.words for hit in found]).missing


def test_question_in_other_forms_than_the_page_is_answered() -> None:
    question = "Wie ist die Aufbewahrungsfrist einer Sicherungskopie gestern eigentlich geregelt worden?"
    selected = QuestionHits(question, hits_of(question, ("archiv.md", PAGE))).selected
    assert selected is not None
    assert "35 Tage" in selected.excerpts[0].text


def test_everyday_words_tell_nothing_and_nouns_made_of_them_do() -> None:
    assert all(map(is_everyday, ["gestern", "nochmal", "nehmen", "nimmt", "setzt", "bekommt", "liegt", "dauernd"]))
    assert not any(map(is_everyday, ["läufer", "sicherung", "besitzer", "leistung", "zertifikat"]))
    terms = question_terms("Wie setzt der Zöllner gestern nochmal die Quote?", [])
    assert terms.telling == {"quot", stem("zöllner")}
    assert stem("planer") in question_terms("Was tut der Planer?", []).telling


@pytest.mark.parametrize(
    "text", ["haproxy restartet dauernd", "wie lange speichert kontor die ablauf history", "disk nochmal voll"]
)
def test_terse_text_with_technical_words_is_german(text: str) -> None:
    assert is_german(text)


def test_german_failure_with_an_english_error_is_german() -> None:
    found = [german_words("Die Nachrichten bleiben in den Warteschlangen, bis der Empfänger antwortet.")]
    error = "deferred (connect to mx1.example.net[203.0.113.7]:25: Connection timed out)\n" * 3
    terms = question_terms(f"Warteschlange hängt\n{error}", found)
    assert {"warteschlang", "hang"} <= terms.worth.keys()
    assert "warteschlang" not in terms.missing


def test_separated_prefix_is_part_of_its_verb_and_a_noun_is_no_verb() -> None:
    terms = question_terms("Wie setze ich den Zähler zurück?", [])
    assert stem("zurücksetzen") in terms.worth
    assert stem("zurück") not in terms.worth
    assert separated_verbs("Der Satz reißt den Lauf an derselben Stelle um.") == {}


def test_german_words_that_share_a_stem_or_an_ending_are_told_apart() -> None:
    assert english_words("zustände") == english_words("zustand") == ("state", "status")
    assert "change" not in english_words("einverstanden")
    assert english_words("zirkusdaten") == ("data",)


def test_translated_word_tells_nothing_if_all_its_translations_are_everyday_words() -> None:
    terms = question_terms("Muss der Hafenwart das Protokoll löschen oder die Kopie ändern?", [])
    assert terms.telling >= {"protokoll", "kopi"}
    assert terms.telling.isdisjoint({"losch", stem("ändern")})


def test_translation_of_a_verb_does_not_name_the_subject_of_another_page() -> None:
    page = "# Pult\n\n## Rollen\n\nWer einen Lauf abbricht, braucht die Rolle Bediener."
    other = "# Stopping\n\n## By hand\n\nStop the engine by hand. Do not stop it twice."
    question = "welche rolle brauche ich um einen lauf abzubrechen"
    selected = QuestionHits(question, hits_of(question, ("pult.md", page), ("stopping.md", other))).selected
    assert selected is not None
    assert selected.excerpts[0].section.source == "pult.md"
    assert not selected.lacks(selected.excerpts)


def test_port_stands_before_its_meaning_in_a_table() -> None:
    table = "| Name | Vorgabe | Bedeutung |\n|---|---|---|\n| `pult` | 7412 | Port, auf dem das Pult lauscht |\n"
    question = "auf welchem port lauscht das pult"
    selected = QuestionHits(question, hits_of(question, ("anschluesse.md", f"# Anschlüsse\n\n{table}"))).selected
    assert selected is not None
    assert not selected.lacks(selected.excerpts)


def test_english_words_that_are_german_stop_words_make_no_text_german() -> None:
    assert not is_german("will the ab test run on all nodes")
    assert not is_german("which nodes will halt fast")
