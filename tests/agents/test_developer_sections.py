"""Questions and failures are answered by the section that holds the answer: coherent, bounded, of the kind asked."""

from dataclasses import replace

import pytest
from agents.developer_memory import START
from growth import LIMIT as LIMIT_OF_GROWTH
from growth import growth
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.excerpts.citations import references
from counterpoint.developer.excerpts.excerpt import excerpt
from counterpoint.developer.excerpts.likelihood import LikelihoodModel, LikelihoodTerms, likelihood_model
from counterpoint.developer.excerpts.relevance import Hit, hits
from counterpoint.developer.excerpts.sections import Section, sections
from counterpoint.developer.excerpts.selection import LACKING_MAX, LIMIT, select
from counterpoint.developer.excerpts.summaries import LIMIT_CHARS, summary_of
from counterpoint.developer.excerpts.units import BODY, units
from counterpoint.developer.language.codes import codes_of, common_codes, first_code_in
from counterpoint.developer.language.german import borrowed_words, english, english_words, is_german, separated_verbs
from counterpoint.developer.language.kinds import kind_of
from counterpoint.developer.language.question_terms import QuestionTerms, question_terms
from counterpoint.developer.policies.procedures import procedures
from counterpoint.memory.ingest.chunk import chunk, detect
from counterpoint.proto.memory import Item

CURVE = load_calibration().answer
SLOTS = """---
title: slots
---

# Replication slots

A slot keeps the log that a replica has not read yet.

## When a slot grows

Never drop the slot while its replica is down: the replica would have to be copied anew.

1. Look which replica is behind with `slotctl list`.
2. Start that replica.
3. If it cannot be started, copy it anew, and only then drop the slot.

## Settings

| Setting | Default | Meaning |
| --- | --- | --- |
| `slot.keep_gb` | 40 | Most that a slot keeps |
| `slot.idle_h` | 72 | Idle slots are dropped after so many hours |

## Contacts

| System | Team | Reached |
| --- | --- | --- |
| Orders lake | Harbour | harbour@lake.example |
| Billing | Till | till@lake.example |
"""
EXITS = """Exit codes
==========

Storage
-------

Exit code 74 of the loader means that the object is not in the bucket.

1. Look it up with ``loadctl show KEY``.
2. Ask the producer to write it again.

.. warning::

   Do not retry by hand: the loader would skip the day.

Memory
------

Exit code 137 means that the kernel ended the loader.

* raise ``memory_mb``
* or split the input
"""


def hits_of(query: str, *texts: tuple[str, str], cosine: float = 0.6) -> tuple[Hit, ...]:
    """All passages of documents as a search finds them."""
    items = []
    for source, text in texts:
        pieces = chunk(text, detect(source, text))
        for n, piece in enumerate(pieces.chunks):
            body = {"document_id": source, "source": source, "title": source, "text": piece.text, "start": piece.start,
                    "context": piece.context, "type": pieces.type}  # fmt: skip
            items.append(
                Item(store="chunks", id=f"{source}-{n:05d}", project="shop", version=1, body=body, author="memory",
                     label=1, integrity=2, seq=1, at=START, score=0.5,
                     scores={"cosine": cosine, "lexical_z": 2.0, "cosine_z": 2.0, "coverage": 0.5})
            )  # fmt: skip
    return hits(query, items, CURVE)


def answered(question: str, *texts: tuple[str, str]) -> str:
    return QuestionHits(question, hits_of(question, *(texts or (("slots.md", SLOTS),)))).quoted(CURVE.threshold).text


def test_prohibition_about_the_thing_asked_is_in_the_answer() -> None:
    text = answered("Is it OK to drop the replication slot?")
    assert "Never drop the slot while its replica is down" in text


CONNECTORS = """# Kafka Connect

## Task of the sink is FAILED

1. Read the trace of the task with `connectctl trace sink`.
2. Restart the task of the sink connector.

Never delete the sink connector: two days of orders are loaded twice.
"""


@pytest.mark.parametrize(
    ("question", "ahead"),
    [
        ("Can I delete the sink connector?", "Never delete the sink connector"),
        ("How do I restart the task of the sink connector?", "1. Read the trace"),
        ("May I read the trace of the task of the sink?", "1. Read the trace"),
    ],
)
def test_prohibition_of_the_requested_act_comes_first(question: str, ahead: str) -> None:
    text = answered(question, ("connect.md", CONNECTORS))
    assert text.startswith(ahead)
    assert text.count("Never delete") == 1
    assert text.index("1. Read") < text.index("2. Restart")


def test_procedure_comes_whole_in_order_with_its_warning() -> None:
    text = answered("A slot grows because its replica is behind. What do I do?")
    places = [text.index(each) for each in ("Never drop", "1. Look", "2. Start", "3. If it cannot")]
    assert places == sorted(places)


def test_row_comes_with_the_headers_that_make_it_a_sentence() -> None:
    text = answered("Who owns the orders lake?")
    assert "| System | Team | Reached |" in text
    assert "| Orders lake | Harbour | harbour@lake.example |" in text


OWNERS = """## Teams

The owner of a flow is the team whose name it starts with, with these exceptions:

| Name | Owner | Remark |
|---|---|---|
| `orders-enrich` | Checkout | Was Estuary's. |
| `orders-archive` | Glacier | Writes to the lake |
| `nightly-close` | Treasury | 41 steps |

`nightly-close` runs on Sundays.
"""
FLOWS = """# Flows

Runs begin at six. Each of them is watched by its owner.

The flow `orders-enrich` reads what the front door has written.

    flowctl start orders-enrich
"""


def test_question_for_an_owner_quotes_its_row_and_text_that_names_the_thing_alone() -> None:
    text = answered("Who owns orders-enrich?", ("owners.md", OWNERS), ("flows.md", FLOWS))
    assert "| Name | Owner | Remark |\n|---|---|---|\n| `orders-enrich` | Checkout | Was Estuary's. |" in text
    assert "The flow `orders-enrich` reads" in text
    assert not [other for other in ("Glacier", "Treasury", "Sundays", "starts with", "six", "flowctl") if other in text]


def test_owners_of_other_things_are_no_answer() -> None:
    page = "# Price feed\n\nThe price feed runs each hour. It reads the exchange rates.\n\n| Job | Owner |\n|---|---|\n"
    page += "| stock count | Depot team |\n| ledger close | Treasury team |\n"
    question = "Who is responsible for the exchange rates?"
    assert QuestionHits(question, hits_of(question, ("feed.md", page))).grade(CURVE).probability <= LACKING_MAX


def test_row_is_quoted_with_its_headers() -> None:
    ports = "# Ports\n\n| Port | Process |\n|---|---|\n| 9810 | front |\n| 9811 | slot monitor |\n"
    question = "Which port does the slot monitor need?"
    assert QuestionHits(question, hits_of(question, ("ports.md", ports))).grade(CURVE).probability > LACKING_MAX
    (section,) = sections(hits_of(question, ("ports.md", ports)))
    assert section.sentences[-1] == "Port: 9811; Process: slot monitor"


def test_row_with_other_cells_than_its_headers_says_its_text() -> None:
    (section,) = sections(hits_of("slot", ("ports.md", "# Ports\n\n| Port | Process |\n|---|---|\n| 9811 |\n")))
    assert section.sentences[-1] == "| 9811 |"


def test_duration_of_a_setting_is_answered_by_its_row() -> None:
    assert "| `slot.idle_h` | 72 |" in answered("How long until idle slots are dropped?")


@pytest.mark.parametrize("question", ["What is a slot for?", "When does a slot grow?", "Which settings has a slot?"])
def test_headings_front_matter_and_directives_are_no_answer(question: str) -> None:
    made = QuestionHits(question, hits_of(question, ("slots.md", SLOTS), ("exits.rst", EXITS))).quoted(CURVE.threshold)
    for citation in made.citations:
        first = citation.quote.splitlines()[0]
        assert not first.startswith(("#", "---", ".. ", "title:"))
        assert set(first) - set("=-")


def test_list_is_not_quoted_without_the_sentence_that_opens_it() -> None:
    text = "# Retention\n\nThese files are kept for ever:\n\n- invoices of customers\n- contracts\n- letters\n"
    assert "These files are kept for ever:" in answered("Are invoices of customers kept?", ("keep.md", text))


def whole(question: str, *texts: tuple[str, str]) -> tuple[QuestionTerms, Section]:
    """A question, and the first section of what is found for it."""
    sought = hits_of(question, *texts)
    return question_terms(question, [hit.words for hit in sought]), sections(sought)[0]


def test_sentence_that_opens_a_list_is_not_quoted_without_the_list() -> None:
    beside = "A stuck loader is told by its log."
    opener, opened = "Free the stuck loader of the lake by this:", "```sh\nlockctl release --all --by-force\n```"
    sought, section = whole("How do I free the stuck loader?", ("stuck.md", f"{beside}\n\n{opener}\n\n{opened}\n"))
    made = excerpt(sought, section, len(opener) + len(opened) + 4)
    assert made
    assert made.text == f"{opener}\n\n{opened}"


def test_prohibition_comes_before_a_sentence_that_says_as_much() -> None:
    allowed, never = "Somebody may purge the queue of the relay.", "Never purge the queue of the relay."
    for question, wins in (("May I purge the queue of the relay?", never), ("Who purges the relay's queue?", allowed)):
        sought, section = whole(question, ("relay.md", f"{allowed}\n\n{never}\n"))
        made = excerpt(sought, section, len(allowed) + 2)
        assert made
        assert made.text == wins


@pytest.mark.parametrize(
    "question",
    ["What does a replication slot cost?", "What is the password of the slot?",
     "What's the replication user password?", "Which port do the slots use?",
     "Which version of the slots is there?", "password of the slot database?", "How many slots are idle right now?",
     "Wie viele Slots sind gerade belegt?", "Who do I page when a slot grows?", "In which region is the slot?"],
)  # fmt: skip
def test_kind_with_a_form_of_its_own_is_refused_where_no_text_has_it(question: str) -> None:
    made = QuestionHits(question, hits_of(question, ("slots.md", SLOTS))).grade(CURVE)
    assert not made.sufficient
    assert made.probability <= LACKING_MAX


def test_a_question_about_our_own_setting_is_answered_by_our_own_page() -> None:
    question = "How many idle slots do we keep?"
    vendor = "# Retention\n\nIdle slots: a server keeps 40 idle slots.\n"
    own = "# Retention\n\nIdle slots: on our servers we keep 40 idle slots.\n"
    likely = [
        QuestionHits(question, hits_of(question, ("keep.md", text))).grade(CURVE).probability for text in (vendor, own)
    ]
    assert likely[0] <= 0.2 < likely[1]


@pytest.mark.parametrize(
    "question",
    ["What is the limit of idle slots on our servers?", "what are the slots in our lab",
     "which version do our servers run", "Welche Version haben unsere Server?"],
)  # fmt: skip
def test_value_of_something_of_ours_is_asked_of_us(question: str) -> None:
    assert question_terms(question, []).ours
    assert not question_terms("How do I stop the slots of our servers from growing?", []).ours


def test_section_nearly_as_good_as_the_best_is_quoted_beside_it() -> None:
    beside = "# Slots of a replica\n\nA slot that a replica holds grows while the replica is behind.\n"
    made = answered("Why does the slot of a replica grow?", ("slots.md", SLOTS), ("replica.md", beside))
    assert "A slot that a replica holds grows" in made
    assert "Start that replica." in made


def test_row_is_found_by_a_number_of_one_digit_and_stands_below_its_headers() -> None:
    rows = "".join(f"| {n} | {n // 2 + 1} | {(n - 1) // 2} |\n" for n in range(1, 10))
    text = (
        f"# Quorum\n\nA cluster of members has a majority.\n\n| Members | Majority | May fail |\n|---|---|---|\n{rows}"
    )
    padding = "\n".join(f"## Note {n}\n\nMembers of a cluster form a majority in note {n * 11}.\n" for n in range(8))
    text = answered("majority of a cluster of 7 members", ("quorum.md", text), ("notes.md", f"# Notes\n\n{padding}"))
    assert "| 7 | 4 | 3 |" in text
    assert "| Members | Majority | May fail |\n|---|---|---|\n" in text


def test_references_name_a_document_once_for_places_that_follow_one_another() -> None:
    selected = select("A slot grows because its replica is behind. What do I do?", hits_of("slot", ("slots.md", SLOTS)))
    assert selected
    first = selected.citations[0]
    other = first.model_copy(update={"source_path": "other.md"})
    lines = references((first, first, other)).splitlines()
    place = f"{first.start} to {first.end}"
    assert lines == [f"[1] slots.md, characters {place}; [2] {place}  ", f"[3] other.md, characters {place}  "]


def test_thing_that_the_pages_never_mention_is_less_likely_than_one_they_do() -> None:
    known, unknown = "How long until idle slots are dropped?", "How long until idle tunnels of the gateway are dropped?"
    likely, unlikely = (
        QuestionHits(each, hits_of(each, ("slots.md", SLOTS))).grade(CURVE).probability for each in (known, unknown)
    )
    assert likely > unlikely


def test_version_that_the_pages_never_mention_is_less_likely_than_one_they_do() -> None:
    page = ("update.md", "# Update of the ledger\n\nTo update the ledger to 4.3, stop the ledger and run the setup.\n")
    questions = ("how do I update the ledger to 4.3", "how do I update the ledger to 5.1")
    known, unknown = (QuestionHits(each, hits_of(each, page)).grade(CURVE).probability for each in questions)
    assert unknown < known


def test_a_rewritten_search_needs_a_higher_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = LikelihoodTerms(threshold=0.48, intercept=0.0, weights={})
    even = LikelihoodModel(questions=terms, failures=terms, fitted_on="a test", measured="")
    monkeypatch.setattr("counterpoint.developer.excerpts.selection.likelihood_model", lambda: even)
    question = "How long until idle slots are dropped?"
    first, again = (
        QuestionHits(question, hits_of(question, ("slots.md", SLOTS)), rewritten=again).grade(CURVE)
        for again in (False, True)
    )
    assert first.probability == again.probability == 0.5
    assert (first.sufficient, again.sufficient) == (True, False)


def test_failure_is_answered_by_the_section_that_names_its_exit_code() -> None:
    failure = "The loader stops\nloader exited with exit code 74"
    best, *_ = procedures(failure, hits_of(failure, ("exits.rst", EXITS), cosine=0.2))
    assert best.code == "exit code 74"
    assert best.likely
    places = [best.text.index(each) for each in ("Exit code 74", "1. Look", "2. Ask", "Do not retry by hand")]
    assert places == sorted(places)
    assert "137" not in best.text


QUOTING = """# Registry

## Push is refused

`denied: quota exceeded` means that the project has used up its storage.

1. Delete untagged artifacts.
2. Raise the quota.

## Compilation error

The build prints "compilation error".

1. Read the log of the build.
"""


def test_failure_is_answered_by_the_section_that_quotes_its_message() -> None:
    failure = "upload 8841 breaks\nunexpected status: denied: quota exceeded for project payments, 52.1GiB of 50GiB"
    best, *_ = procedures(failure, hits_of(failure, ("registry.md", QUOTING), ("slots.md", SLOTS), cosine=0.1))
    assert best.code == "denied: quota exceeded"
    assert best.likely
    assert best.numbered == ("1. Delete untagged artifacts.", "2. Raise the quota.")
    other = "upload 8841 breaks\nunexpected status: denied: disk quota of the runner exceeded"
    assert all(each.code is None for each in procedures(other, hits_of(other, ("registry.md", QUOTING), cosine=0.1)))


LEDGER_ALERT = """# LedgerReplicaLagging

## Meaning

LedgerReplicaLagging fires when a replica of the ledger database is more than 300 s behind its primary database.

## Impact

Readers of the ledger database get old balances from the replica.

## Mitigation

### Move the readers

Point the readers at the primary with `ledgerctl route --primary`.

### Rebuild

Rebuild the copy with `ledgerctl rebuild` when nothing else helps.
"""
OPEN_LEDGER = LEDGER_ALERT.replace("LedgerReplicaLagging", "OpenLedger")


def test_alert_is_answered_by_the_remedies_of_its_page_not_by_when_it_fires() -> None:
    failure = (
        "paged at night\nLedgerReplicaLagging: replica ledger-2 of the ledger database is 900 s behind its primary"
    )
    best, *_ = procedures(failure, hits_of(failure, ("alerts/ledger.md", LEDGER_ALERT), ("slots.md", SLOTS)))
    assert best.code == "LedgerReplicaLagging"
    assert best.likely
    shown = "\n".join((best.text, *("\n".join(each.quotes) for each in best.more)))
    assert "ledgerctl route --primary" in shown
    assert "ledgerctl rebuild" in shown
    assert "fires when" not in shown


def test_page_of_an_alert_is_known_by_the_name_of_its_file() -> None:
    failure = "LedgerReplicaLagging: replica ledger-2 is 900 s behind"
    page = LEDGER_ALERT.replace("# LedgerReplicaLagging", "# A copy of the books is late")
    best, *_ = procedures(failure, hits_of(failure, ("alerts/LedgerReplicaLagging.md", page), cosine=0.1))
    assert best.code == "LedgerReplicaLagging"


def test_page_of_another_alert_is_not_proposed() -> None:
    page = ("alerts/ledger.md", LEDGER_ALERT)
    for failure, proposed in (
        ("LedgerReplicaLost: a replica of the ledger database is gone from its primary database", 0),
        ("[FIRING:1] LedgerDown critical: the ledger database and its primary are away", 0),
        ("a replica of the ledger database is behind its primary database", 1),
        ("LedgerStorageError: a replica of the ledger database is behind its primary database", 1),
    ):
        assert bool(procedures(failure, hits_of(failure, page))) == bool(proposed), failure


def test_short_remedy_of_an_alert_comes_with_the_steps_of_its_diagnosis() -> None:
    failure = "LedgerDown: every replica and the primary database of the ledger are down"
    page = """# LedgerDown

## Meaning

LedgerDown fires when every replica and the primary database of the ledger are down.

## Diagnosis

1. List the pods of the ledger with `ledgerctl pods`.
2. Read their logs.

## Mitigation

Restore the last copy of the ledger.
"""
    best, *_ = procedures(failure, hits_of(failure, ("alerts/down.md", page), ("slots.md", SLOTS)))
    shown = "\n".join((best.text, *("\n".join(each.quotes) for each in best.more)))
    assert best.text == "Restore the last copy of the ledger."
    assert "1. List the pods" in shown
    assert "fires when" not in shown


def test_product_is_no_alert_and_another_alert_no_name_of_the_failure() -> None:
    for failure, page in (
        ("OpenLedger exited in batch 7", OPEN_LEDGER), ("LedgerPrimaryLagging: ledger-2", LEDGER_ALERT),
        ("LedgerReplicaLaggingBadly: ledger-2", LEDGER_ALERT),
    ):  # fmt: skip
        made = procedures(failure, hits_of(failure, ("ledger.md", page), cosine=0.1))
        assert all(each.code is None for each in made), failure


def test_two_quoted_words_name_no_failure() -> None:
    failure = "compilation error in module ledger at line 7"
    assert all(
        each.code is None for each in procedures(failure, hits_of(failure, ("registry.md", QUOTING), cosine=0.1))
    )


def test_a_section_is_ahead_of_those_ranked_after_it() -> None:
    failure = "the slot grows while its replica is down"
    selected = select(failure, hits_of(failure, ("slots.md", SLOTS), ("exits.rst", EXITS)), failure=True)
    assert selected is not None
    assert len(selected.ranked) > 2
    ahead = [selected.features_of(one, (one.excerpt,))["ahead"] for one in selected.ranked[:2]]
    assert min(ahead) > 0


def test_likelihood_of_a_failure_has_terms_of_its_own() -> None:
    failure = "loader exited with exit code 74 in batch_20417 at node-7 after handshake with 10.4.1.9"
    pages = hits_of(failure, ("exits.rst", EXITS), ("slots.md", SLOTS))
    selected = select(failure, pages, failure=True)
    assert selected is not None
    features = selected.features_of(selected.ranked[0], selected.excerpts)
    model = likelihood_model()
    assert selected.likelihood == model.failures.probability(features)
    assert replace(selected, failure=False).likelihood == model.questions.probability(features)


@pytest.mark.parametrize(
    ("failure", "page", "summary"),
    [
        (
            "loader exited with exit code 74",
            ("exits.rst", EXITS),
            "Storage: Look it up with ``loadctl show KEY``; Ask the producer to write it again",
        ),
        (
            "the slot grows while its replica is down",
            ("slots.md", SLOTS),
            "When a slot grows: Look which replica is behind with `slotctl list`; Start that replica",
        ),
        (
            "exit code 9: the disk is full",
            (
                "log.md",
                "# Outage of March\n\n## Course\n\nThe loader ended with exit code 9 because the disk was full.\n",
            ),
            "Outage of March: Course",
        ),
    ],
)
def test_procedure_is_summarised_by_its_heading_and_the_beginnings_of_its_steps(
    failure: str, page: tuple[str, str], summary: str
) -> None:
    best, *_ = procedures(failure, hits_of(failure, page))
    assert (best.summary or "").startswith(summary)
    assert len(best.summary or "") <= LIMIT_CHARS


def test_a_conditional_step_is_summarised_with_its_act() -> None:
    steps = ("1. If they hang in `io_wait`, fail it over: on the partner.", "2. Ist es gesetzt, das Konto entsperren.")
    summary = "Drained: If they hang in `io_wait`, fail it over; Ist es gesetzt, das Konto entsperren"
    assert summary_of(("Drained",), steps) == summary


@given(st.lists(st.text(max_size=200)), st.lists(st.text(max_size=200)))
def test_summary_is_one_line_within_its_limit(headings: list[str], steps: list[str]) -> None:
    summary = summary_of(headings, steps)
    assert summary is None or (0 < len(summary) <= LIMIT_CHARS and len(summary.splitlines()) == 1)


def test_section_that_names_the_code_is_likely_and_comes_before_one_that_has_more_of_the_words() -> None:
    failure = "The nightly feed of partner invoices stops halfway on Tuesday\nprocess exited with exit code 137"
    bucket = (
        "# Feeds\n\nThe nightly feed of partner invoices stops halfway on Tuesday.\n\n"
        "1. Look at the process of the nightly feed of partner invoices.\n2. Start the feed again.\n"
    )
    best, *_ = procedures(failure, hits_of(failure, ("bucket.md", bucket), ("exits.rst", EXITS), cosine=0.2))
    assert (best.source, best.code, best.likely) == ("exits.rst", "exit code 137", True)
    assert "raise ``memory_mb``" in best.text


def test_table_of_owners_is_no_part_of_a_procedure() -> None:
    page = (
        "# Quill\n\n## Owners\n\n| Partition of segments | Team |\n|---|---|\n| `grain_prices` sealed | Mill |\n\n"
        "## Segment is sealed (QLS-20417)\n\nA lease of a partition outlives its compactor.\n\n"
        "1. Show the lease of the segment.\n2. Release it.\n"
    )
    failure = "QLS-20417: segment of partition grain_prices is sealed by a lease of its compactor"
    selected = select(failure, hits_of(failure, ("quill.md", page)), failure=True)
    assert selected
    assert len(selected.ranked) == 2
    best, *_ = procedures(failure, hits_of(failure, ("quill.md", page)))
    assert best.code == "qls-20417"
    assert best.more == ()


def test_code_is_not_found_inside_another() -> None:
    failure = "The loader stops\nloader exited with exit code 7"
    assert all(each.code is None for each in procedures(failure, hits_of(failure, ("exits.rst", EXITS), cosine=0.2)))


PLUGINS = """# Trino catalog

## Table is locked

`TrinoTaskException` with the words "lock is held": release the lease.

1. Release the lease of the table.

## Table is gone

A `TrinoTaskException` that says "no such table": run the sync.

1. Run the sync.

## Splits are lost

With `TrinoTaskException` and `SplitLostFault` one worker has left.

1. Start the worker again.
"""


def test_error_with_a_registered_name_is_named_by_the_whole_of_it() -> None:
    assert codes_of("order refused: urn:ledger:error:limitReached: 40 orders") == ("urn ledger error limitreached",)
    assert first_code_in(codes_of("urn:ledger:error:limitReached"), "`400 urn:ledger:error:badSum`: the sum") is None


def test_class_that_many_sections_name_is_no_exact_name_and_the_rarest_is() -> None:
    only = "TrinoTaskException: the coordinator took too long"
    assert {each.code for each in procedures(only, hits_of(only, ("trino.md", PLUGINS), cosine=0.2))} == {None}
    both = "TrinoTaskException: task 7 has failed, caused by SplitLostFault"
    best, *_ = procedures(both, hits_of(both, ("trino.md", PLUGINS), cosine=0.2))
    assert best.code == "splitlostfault"
    assert "Start the worker" in best.text


def test_wrapper_is_no_exact_name() -> None:
    page = "# Joins\n\nOnce a join ended with SparkException.\n\n1. Raise the shuffle partitions.\n"
    failure = "SparkException: the volume of invoices is read only"
    best, *_ = procedures(failure, hits_of(failure, ("joins.md", page), cosine=0.2))
    assert (best.code, best.likely) == (None, False)


def test_class_with_several_fixes_of_several_errors_distinguishes_nothing() -> None:
    page = "# Joins\n\nOnce a join ended with KontorJobException.\n\n1. Raise the shuffle partitions.\n"
    errors = ("the volume is full", "the key is expired", "the peer has left")
    fixes = [(f"KontorJobException: {error}", f"Mend it: {error}") for error in errors]
    assert common_codes(fixes) == {"kontorjobexception"}
    assert common_codes(fixes[:2]) == common_codes([(fixes[0][0], fix) for _, fix in fixes]) == frozenset()
    failure = "KontorJobException: the queue of the night lane is sealed by another coordinator"
    (known,) = procedures(failure, hits_of(failure, ("joins.md", page), cosine=0.2))
    (common,) = procedures(failure, hits_of(failure, ("joins.md", page), cosine=0.2), common=common_codes(fixes))
    assert (known.code, known.likely) == ("kontorjobexception", True)
    assert (common.code, common.likely) == (None, False)


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


@pytest.mark.parametrize(
    ("text", "has_one"),
    [
        ("Slots are dropped after 90 minutes.", True),
        ("The lock lives for half an hour.", True),
        ("| slot_ttl | 90 |", True),
        ("Die Sperre bleibt, bis der Abgleich endet.", True),
        ("Kept as long as the tenant exists.", True),
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


def test_untrusted_sections_are_no_procedures() -> None:
    failure = "loader exited with exit code 74"
    of = [hit.item.model_copy(update={"integrity": 0}) for hit in hits_of(failure, ("exits.rst", EXITS))]
    assert procedures(failure, hits(failure, of, CURVE)) == ()


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


def test_every_citation_reads_as_its_passage_and_the_answer_is_bounded() -> None:
    more = "## More\n\n" + "\n\n".join(f"Paragraph {n} about slots and their replicas." * 6 for n in range(30))
    for text, least in ((f"{SLOTS}\n{more}", 1_000), (more, 1_300)):
        sought = hits_of("What about slots and replicas?", ("slots.md", text))
        made = QuestionHits("What about slots and replicas?", sought).quoted(CURVE.threshold)
        assert least < len(made.text) <= 1_500
        for citation in made.citations:
            assert text[citation.start : citation.end] == citation.quote


def test_conversations_keep_their_short_quotes() -> None:
    text = "Ann: Where is the key?\nBob: It is in the cellar.\n"
    (hit,) = hits_of("Where is the key?", ("talk.md", text))
    spoken = hit.item.model_copy(update={"body": {**hit.item.body, "type": "conversation"}})
    assert select("Where is the key?", hits("Where is the key?", [spoken], CURVE)) is None


def test_ranking_takes_time_that_grows_with_the_candidates() -> None:
    question = "How long until idle slots of a replica are dropped?"
    sought = {
        size: hits_of(question, *((f"slots-{n}.md", SLOTS.replace("slot", f"slot{n}")) for n in range(size)))
        for size in (1, 8)
    }
    select(question, sought[8])
    assert growth(lambda size: select(question, sought[size]), 8) < LIMIT_OF_GROWTH


def test_the_best_sections_fill_at_most_the_limit() -> None:
    question = "How long until idle slots of a replica are dropped?"
    sought = hits_of(question, *((f"slots-{n}.md", SLOTS.replace("slot", f"slot{n}")) for n in range(4)))
    selected = select(question, sought)
    assert selected
    assert sum(len(each.text) for each in selected.excerpts) <= LIMIT


@given(st.text(alphabet=st.sampled_from("ab \n#-*1.|`>:=\t~_"), max_size=300))
def test_units_are_in_order_and_read_as_they_stand(text: str) -> None:
    at = 0
    for unit in units(text):
        assert unit.start >= at
        assert text[unit.start : unit.end] == unit.text
        assert unit.kind not in BODY or unit.text
        at = unit.end
