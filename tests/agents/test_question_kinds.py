"""Questions for a kind of value are answered by texts with one: a port, a period, a time, a phone number."""

import pytest
from agents.section_pages import CURVE, SLOTS, hits_of

from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.excerpts.selection import LACKING_MAX
from counterpoint.developer.language.kinds import kind_of


@pytest.mark.parametrize(
    "question",
    ["What does a replication slot cost?", "What is the password of the slot?",
     "What's the replication user password?", "Which port do the slots use?",
     "Which version of the slots is there?", "password of the slot database?", "How many slots are idle right now?",
     "Wie viele Slots sind gerade belegt?", "Who do I page when a slot grows?", "In which region is the slot?",
     "Who is on call for the slots at slots.example this week?", "Wer hat heute Bereitschaft für die Slots?",
     "Wie hoch ist der Slotpreis?", "Is the slot of the replica idle right now?", "Ist der Slot gerade belegt?"],
)  # fmt: skip
def test_kind_with_a_form_of_its_own_is_refused_where_no_text_has_it(question: str) -> None:
    made = QuestionHits(question, hits_of(question, ("slots.md", SLOTS))).grade(CURVE)
    assert not made.sufficient
    assert made.probability <= LACKING_MAX


def test_password_that_is_mentioned_is_not_asked_for() -> None:
    for question in ("Does it matter what password a replica has?", "Tell me what is the token of the slot"):
        kind = kind_of(question)
        assert (kind is not None and kind.name == "secret") is question.startswith("Tell")


def test_question_for_a_phone_number_is_answered_by_a_number_alone() -> None:
    page = "# Slots\n\nThe contact for slots phones you: the phone number of the contact for slots is on your rota{}.\n"
    for question in ("phone number of the contact for slots", "Telefonnummer des Kontakts für Slots"):
        likely = [
            QuestionHits(question, hits_of(question, ("slots.md", page.format(number)))).grade(CURVE).probability
            for number in ("", ", +49 30 555 0100", ", extension 4711")
        ]
        assert likely[0] <= LACKING_MAX < min(likely[1:])


@pytest.mark.parametrize(
    ("text", "has_one"),
    [
        ("Slots are dropped after 90 minutes.", True),
        ("The lock lives for half an hour.", True),
        ("| slot_ttl | 90 |", True),
        ("Die Sperre bleibt, bis der Abgleich endet.", True),
        ("Kept as long as the tenant exists.", True),
        ("Kopien werden nach neunzig Tagen gelöscht.", True),
        ("Der Slot verfällt nach achtundvierzig Stunden.", True),
        ("A slot expires after forty-eight hours.", True),
        ("Backups go away after eighteen months.", True),
        ("Neunzig Slots sind belegt.", False),
        ("Remove idle slots immediately.", False),
        ("Every slot has 3 owners.", False),
    ],
)
def test_question_how_long_is_answered_by_a_period_only(text: str, has_one: bool) -> None:
    for question in ("How long are idle slots kept?", "Wie lange bleibt ein Slot?"):
        kind = kind_of(question)
        assert kind is not None
        assert kind.strict
        assert (kind.answers.search(text) is not None) == has_one


def test_question_how_long_is_refused_by_a_page_without_a_period() -> None:
    page = "# Slots\n\nIdle slots are kept for replicas. Drop a slot immediately if its replica is gone.\n"
    question = "How long are idle slots kept?"
    assert not QuestionHits(question, hits_of(question, ("slots.md", page))).grade(CURVE).sufficient
    page += "\nIdle slots are kept for 90 minutes.\n"
    assert QuestionHits(question, hits_of(question, ("slots.md", page))).grade(CURVE).sufficient


@pytest.mark.parametrize(
    "text",
    ["every Monday at 10am UTC", "at 7 p.m.", "um 7 Uhr", "at midnight", "gegen Mittag", "at 09:30", "after the close"],
)
@pytest.mark.parametrize("question", ["What time is the test call?", "Wann ist der Probeanruf?"])
def test_question_for_a_time_is_answered_by_a_clock_time_or_an_event(question: str, text: str) -> None:
    kind = kind_of(question)
    assert kind is not None
    assert kind.answers.search(f"The test call is {text}.")
    assert not kind.answers.search("The test call rings 10 phones.")
