"""The entry of a failure is quoted from its remedy on, and a page about another subject is no answer."""

import pytest
from agents.section_pages import CURVE, hits_of

from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.excerpts.sections import sections
from counterpoint.developer.excerpts.selection import LACKING_MAX
from counterpoint.developer.policies.procedures import Procedure, procedures

FAILURE = "the writer stops\nwriter: segment 41 refused, checksum of block 7 does not match the ledger"
ENTRIES = """# Writer

## Disk is slow

### Symptoms

The writer prints that a write took more than 5 s.

### Solution

Move the writer to a faster disk.

## Block is damaged

### Description

#### Log of the writer

The writer prints `segment 12 refused, checksum of block 3 does not match the ledger`.

### Root cause

A block was written by two writers.

### Possible solution

Stop the second writer.

### Workaround

Drop the block with `writectl drop`.

## Block is too large

### Solution

Raise the limit of blocks.
"""
PAGE = """---
title: "The writer refuses a segment"
---

## Symptoms

The writer prints `segment 12 refused, checksum of block 3 does not match the ledger`.

## What to do

Stop the second writer.
"""


def whole_text(best: Procedure) -> str:
    return "\n".join((best.text, *("\n".join(each.quotes) for each in best.more)))


def test_remedy_of_an_entry_comes_before_its_symptom_and_no_other_remedy_beside_it() -> None:
    best, *_ = procedures(FAILURE, hits_of(FAILURE, ("writer.md", ENTRIES)))
    places = [
        whole_text(best).index(each) for each in ("Stop the second writer.", "writectl drop", "segment 12 refused")
    ]
    assert places == sorted(places)
    assert best.likely
    assert "faster disk" not in whole_text(best)
    assert "limit of blocks" not in whole_text(best)


@pytest.mark.parametrize("heading", ["What to do", "Solution", "Workaround", "Was tun?"])
def test_entry_may_be_the_whole_page_and_its_remedy_a_neighbour_of_a_result(heading: str) -> None:
    page = PAGE.replace("What to do", heading)
    symptom, remedy = (
        [hit for hit in hits_of(FAILURE, ("writer.md", page)) if (heading in hit.context) == other]
        for other in (False, True)
    )
    best, *_ = procedures(FAILURE, symptom, remedy)
    assert best.text == "Stop the second writer."
    assert "segment 12 refused" in whole_text(best)


def test_page_of_an_earlier_ticket_may_answer_the_failure_of_another_one() -> None:
    page = ("ops-2208.md", "# OPS-2208 no valid account\n\n## Fix\n\nAsk for a valid account of the bill.\n")
    best, *_ = procedures("OPS-2231: no valid account of the bill", hits_of("bill", page))
    assert best.likely


LEAD = """# Segment is refused

The writer prints `segment 12 refused, checksum of block 3 does not match the ledger` and stops.

## How it was found

Somebody looked at the ledger.

## {}

1. Stop the second writer.
2. Drop the block.
"""


@pytest.mark.parametrize("heading", ["Fix", "Fixed by", "Behoben durch"])
def test_only_remedy_on_a_page_comes_before_its_lead(heading: str) -> None:
    best, *_ = procedures(FAILURE, hits_of(FAILURE, ("segment.md", LEAD.format(heading))))
    assert best.numbered == ("1. Stop the second writer.", "2. Drop the block.")
    assert "segment 12 refused" in whole_text(best)


def test_part_with_steps_whose_heading_is_about_the_failure_comes_before_the_symptoms() -> None:
    page = (
        "# Segments\n\n## Symptoms\n\nThe writer says `segment 12 refused, checksum of block 3 does not match the "
        "ledger`, or the reader hangs.\n\n## Checksum errors\n\nTwo writers are at work.\n\n"
        "1. Stop the second writer.\n\n## Reader hangs\n\n1. Restart the reader.\n"
    )
    best, *_ = procedures(FAILURE, hits_of(FAILURE, ("segments.md", page)))
    assert best.numbered == ("1. Stop the second writer.",)
    assert "segment 12 refused" in whole_text(best)
    assert "Restart the reader" not in whole_text(best)


def test_remedies_of_several_parts_of_a_page_do_not_belong_to_its_lead() -> None:
    page = LEAD.format("Fix") + "\n## Reading is slow\n\nIt reads twice.\n\n## Fix of slow reading\n\n1. Buy a disk.\n"
    best, *_ = procedures(FAILURE, hits_of(FAILURE, ("segment.md", page)))
    assert best.text.startswith("The writer prints")


def test_remedy_of_one_part_of_a_page_does_not_belong_to_its_lead() -> None:
    page = LEAD.format("Reading is slow\n\n### Fix")
    best, *_ = procedures(FAILURE, hits_of(FAILURE, ("segment.md", page)))
    assert best.text.startswith("The writer prints")


def test_section_that_is_no_part_of_an_entry_has_no_remedy_elsewhere() -> None:
    page = ENTRIES.replace("### Description", "### Writers").replace("### Root cause", "### Blocks")
    best, *_ = procedures(FAILURE, hits_of(FAILURE, ("writer.md", page)))
    assert best.text.startswith("The writer prints `segment 12")
    assert all(one.entry is None for one in sections(hits_of("x", ("writer.md", page))) if "Writers" in one.headings)


LEDGER = ("ledger-sleep.md", "# Sleep\n\nTo let a cluster of the ledger sleep, set `sleep: on` on the cluster.\n")
QUEUE = ("queue-upgrade.md", "# Upgrade\n\nStop the broker, and start the new version.\n")


def test_page_is_no_answer_where_the_question_names_the_subject_of_another_page() -> None:
    own, other = "How do I let a ledger cluster sleep?", "How do I let a queue cluster sleep?"
    likely, unlikely = (QuestionHits(each, hits_of(each, LEDGER, QUEUE)).grade(CURVE) for each in (own, other))
    assert likely.sufficient
    assert unlikely.probability <= LACKING_MAX
    assert QuestionHits(other, hits_of(other, LEDGER)).grade(CURVE).probability > LACKING_MAX


def test_everyday_word_in_the_name_of_another_page_is_no_subject() -> None:
    question = "The node is back. How do I let a ledger cluster sleep?"
    page = ("queue-backing-up.md", "# Backing up the queue\n\nStop the broker, and copy its files.\n")
    assert QuestionHits(question, hits_of(question, LEDGER, page)).grade(CURVE).sufficient


def test_number_in_the_name_of_a_page_is_no_subject() -> None:
    question = "How do I let 2 ledger clusters sleep?"
    page = ("queue-2.md", "# Queue 2\n\nStop the broker, and start the new version.\n")
    assert QuestionHits(question, hits_of(question, LEDGER, page)).grade(CURVE).probability > LACKING_MAX


def test_failure_of_another_system_is_not_answered_unless_its_message_is_quoted() -> None:
    text = "The ledger cluster refuses connections: set `sleep: off` on the cluster of the ledger."
    page = ("ledger-sleep.md", f"# Sleep\n\n{text}\n")
    quoting = ("ledger-sleep.md", f"# Sleep\n\n`cluster refuses all connections`: {text}\n")
    failure = "queue is away\nerror: cluster refuses all connections"
    plain, named = (procedures(failure, hits_of(failure, each, QUEUE))[0].likelihood for each in (page, quoting))
    assert plain <= LACKING_MAX < named


@pytest.mark.parametrize(
    ("shown", "named"),
    [("```\nOct 3 20:39 broker[28905]: queue \"mail\" (25)\n has reached its share \"30\" of the disk\n```", True),
     ("It prints that queue \"mail\" (7) has reached its share \"9\" of the disk.", True),
     ("The queue has reached its share of the disk.", False)],
)  # fmt: skip
def test_section_that_shows_the_message_with_other_numbers_names_the_failure(shown: str, named: bool) -> None:
    failure = 'mails are late\nbroker[911]: queue "mail" (25) has reached its share "100" of the disk'
    page = ("limits.md", f"# Shares\n\n{shown}\n\nRaise the share in `shares.conf`.\n")
    best, *_ = procedures(failure, hits_of(failure, page, QUEUE))
    assert (best.code is not None) == named


@pytest.mark.parametrize(("code", "named"), [("Q-12", False), ("Q-47", True)])
def test_the_number_of_an_error_code_is_no_other_number_of_a_message(code: str, named: bool) -> None:
    failure = "broker: Q-47 the queue has reached its share of 30 on the disk"
    shown = f"{code} the queue has reached its share of 9 on the disk"
    page = ("limits.md", f"# Shares\n\n    {shown}\n\nRaise the share.\n")
    best, *_ = procedures(failure, hits_of(failure, page, QUEUE))
    assert (best.code is not None) == named


def test_quoted_message_counts_more_than_a_shown_one() -> None:
    failure = "warning: relay of the mail is slow\nerror: the disk of the broker has no space left"
    shows = ("relay.md", "# Relay\n\n    the disk of the broker has no space left\n\nThe relay of the mail is slow.\n")
    quotes = ("slow.md", "# Slow mail\n\nIf it says `relay of the mail is slow`, add a relay.\n")
    found = procedures(failure, hits_of(failure, shows, quotes))
    assert [(each.source, each.code) for each in found if each.code] == [("slow.md", "relay of the mail is slow")]
    alone = procedures(failure, hits_of(failure, shows))
    assert alone[0].code == "the disk of the broker has no space left"


def test_alert_that_no_section_names_gets_a_likely_procedure_only() -> None:
    report = "no ready copy of the ledger was detected for 10 minutes"
    page = ("probe.md", "# Probe\n\nThe probe waits 10 minutes until it reports a copy.\n")
    low, *_ = procedures(report, hits_of(report, page, cosine=0.1))
    assert not low.likely
    assert procedures(f"LedgerCopyBehind: {report}", hits_of(report, page, cosine=0.1)) == ()
    assert procedures(f"LedgerCopyBehind: {FAILURE}", hits_of(FAILURE, ("writer.md", ENTRIES)))[0].likely


def test_section_about_another_error_of_the_same_family_is_not_likely() -> None:
    other = "## TW-2215 bill is too old\n\nArchive the bill.\n"
    page = ("bills.md", f"# Bills\n\n## TW-2208 no valid account\n\nAsk for a valid account of the bill.\n\n{other}")
    for code, likely in (("TW-2208", True), ("TW-2231", False), ("KX-2231", True)):
        best, *_ = procedures(f"{code}: no valid account of the bill", hits_of("bill", page))
        assert best.likely is likely
        question = f"What do I do about {code}, no valid account of the bill?"
        probable = QuestionHits(question, hits_of(question, page)).grade(CURVE).probability
        assert (probable > LACKING_MAX) is likely


@pytest.mark.parametrize(
    ("heading", "error", "likely"),
    [("exit code 91", "exit code 92", False), ("exit code 91", "exited with code 91", True),
     ("exit code 1", "exit code 92", True), ("SQLSTATE 40001", "SQLSTATE 40P01", False),
     ("errno 28", "errno 13", False)],
)  # fmt: skip
def test_section_about_another_exit_code_sqlstate_or_errno_is_not_likely(
    heading: str, error: str, likely: bool
) -> None:
    page = ("press.md", f"# Press\n\n## The press ends with {heading}\n\n1. Release the lock of the press.\n")
    failure = f"The press of line 4 has stopped\npressd: the press ends with {error}"
    best, *_ = procedures(failure, hits_of(failure, page))
    assert (best.likelihood > LACKING_MAX) is likely


@pytest.mark.parametrize(
    ("rows", "likely"),
    [("| K-12 | belt of the press is loose |\n| K-15 | belt of the press is torn |", False),
     ("| K-12 | belt of the press is loose |\n| K-47 | belt of the press is torn |", True),
     ("| K-12 | belt of the press is loose |\n| door | belt of the press is hidden |", True)],
)  # fmt: skip
def test_table_of_other_codes_of_the_family_does_not_answer(rows: str, likely: bool) -> None:
    page = ("press.md", f"# Press\n\n## Codes\n\n| Code | Meaning |\n| --- | --- |\n{rows}\n")
    question = "What does K-47 at the belt of the press mean?"
    assert (QuestionHits(question, hits_of(question, page)).grade(CURVE).probability > LACKING_MAX) is likely


@pytest.mark.parametrize(
    ("shown", "likely"),
    [("`K-12 LOOSE`", False), ("K-12, which was a ticket", True), ("`K-47` and `K-12`", True)],
)
def test_page_that_quotes_another_code_of_the_family_does_not_answer(shown: str, likely: bool) -> None:
    text = f"The panel of the press showed {shown}.\n\n## Repair\n\nThe belt of the press was replaced."
    failure = "the belt of the press is torn\nK-47 TORN"
    best, *_ = procedures(failure, hits_of(failure, ("press.md", f"# Press\n\n{text}\n")))
    assert (best.likelihood > LACKING_MAX) is likely


@pytest.mark.parametrize("form", ["| {} | {} |", "- {} - {}"])
def test_timeline_is_quoted_from_the_entry_with_the_failure_on(form: str) -> None:
    failed = "Segment 12 refused, checksum of block 3 does not match the ledger"
    entries = (("07:10", "Reader is slow"), ("07:40", failed),
               ("08:05", "Somebody looks at the disk"), ("08:30", "Second process stopped, all is well"))  # fmt: skip
    head = "| Time | Event |\n| --- | --- |\n" if form.startswith("|") else ""
    rows = "\n".join(form.format(*entry) for entry in entries)
    best, *_ = procedures(FAILURE, hits_of(FAILURE, ("loss.md", f"# Loss\n\n## Timeline\n\n{head}{rows}\n")))
    assert "Second process stopped" in best.text
    assert "Reader is slow" not in best.text
