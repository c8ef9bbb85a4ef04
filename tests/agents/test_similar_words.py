"""Words that are spelled like those of a question count for its answer, and for nothing else."""

import pytest
from agents.section_pages import hits_of

from counterpoint.developer.excerpts.selection import Selection, select
from counterpoint.developer.language.question_terms import question_terms
from counterpoint.developer.language.similar_words import similar_words

SHELF = """# Kontor

## Ablage

Die Rolle Lagerist darf Ablageverzeichnisse in Kontor zurücksetzen.
"""
OTHER = """# Kontor

## Zugang

Die Rolle Pförtner darf Türen in Kontor öffnen.
"""


def selection(question: str) -> Selection:
    selected = select(question, hits_of(question, ("shelf.md", SHELF), ("access.md", OTHER)))
    assert selected is not None
    return selected


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("zurückzusetzen", "zurücksetzen"),
        ("abzubrechen", "abbrechen"),
        ("schrit", "schritt"),
        ("verkleinern", "verkleinerung"),
        ("replicaset", "replica"),
    ],
)
def test_other_forms_of_a_word_are_similar(word: str, other: str) -> None:
    assert similar_words((word,), (other, "kontor")) == {word: frozenset({other})}


@pytest.mark.parametrize(
    ("word", "other"),
    [("restart", "restore"), ("primary", "private"), ("read", "reads"), ("a1b2c3d4", "a1b2c3d5"), ("", "")],
)
def test_other_words_short_ones_and_ids_are_not_similar(word: str, other: str) -> None:
    assert similar_words((word,), (other,)) == {word: frozenset()}


def test_similar_words_keep_their_weight_and_do_not_replace_a_word_that_is_there() -> None:
    terms = question_terms("reset the directory", [frozenset({"directori"})])
    similar = terms.with_similar(frozenset({"directori", "directorat"}))
    assert similar.worth == terms.worth
    assert similar.synonyms == terms.synonyms


def test_an_answer_in_another_form_of_the_word_is_as_likely_as_one_in_the_same_form() -> None:
    other = selection("Welche Rolle braucht man, um Ablageverzeichnisse in Kontor zurückzusetzen?")
    same = selection("Welche Rolle braucht man, um Ablageverzeichnisse in Kontor zurücksetzen zu dürfen?")
    said = [each.features_of(each.ranked[0], each.excerpts)["said"] for each in (other, same)]
    assert said == [1.0, 1.0]
