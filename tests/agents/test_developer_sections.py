"""Questions and failures are answered by the section that holds the answer: coherent, bounded, of the kind asked."""

import pytest
from agents.section_pages import CURVE, EXITS, SLOTS, answered, hits_of
from growth import LIMIT as LIMIT_OF_GROWTH
from growth import growth
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.excerpts.citations import references
from counterpoint.developer.excerpts.excerpt import excerpt
from counterpoint.developer.excerpts.likelihood import LikelihoodModel, LikelihoodTerms
from counterpoint.developer.excerpts.relevance import hits
from counterpoint.developer.excerpts.sections import Section, sections
from counterpoint.developer.excerpts.selection import LACKING_MAX, LIMIT, select
from counterpoint.developer.excerpts.summaries import LIMIT_CHARS, summary_of
from counterpoint.developer.excerpts.units import BODY, units
from counterpoint.developer.language.question_terms import QuestionTerms, question_terms


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


def test_prohibition_that_is_alone_of_its_list_stays_below_the_sentence_that_opens_it() -> None:
    page = (
        "# Error BF-3107\n\nThe follower has lost its certificate. Do this:\n\n- Ask the gate crew for a new one.\n"
        "- Copy it to the `certs` folder of the follower.\n- Do not restart the writer meanwhile.\n"
    )
    text = answered("Can I restart the writer while the follower's certificate is replaced?", ("follower.md", page))
    assert text.index("Do this:") < text.index("- Do not restart the writer")


def test_row_comes_with_the_headers_that_make_it_a_sentence() -> None:
    text = answered("Who owns the orders lake?")
    assert "| System | Team | Reached |" in text
    assert "| Orders lake | Harbour | harbour@lake.example |" in text


SERVERS = """Servers
=======

.. csv-table::
   :header: "Name", "Purpose", "Contact"
   :class: compact

   "mail.example", "Mail, and lists", "postmasters"
   "planet.example", "Planet", "benjamin"

.. list-table:: Racks
   :header-rows: 1

   * - Rack
     - Room
   * - North
     - Cellar
"""


def test_rows_of_tables_in_restructured_text_are_quoted() -> None:
    text = answered("Who is the contact for planet?", ("servers.rst", SERVERS))
    assert '"Name", "Purpose", "Contact"' in text
    assert '"planet.example", "Planet", "benjamin"' in text
    section, *_ = sections(hits_of("planet", ("servers.rst", SERVERS)))
    assert "Name: mail.example; Purpose: Mail, and lists; Contact: postmasters" in section.sentences
    assert "Cellar" in answered("In which room is the rack North?", ("servers.rst", SERVERS))


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


def test_prohibition_of_a_wider_case_does_not_come_before_what_is_permitted_in_the_case_asked_about() -> None:
    page = (
        "# Access\n\nWe give admin access to few people.\n\nNever give admin access to the operators.\n\n"
        "The operators may have admin access to the project of the rehearsal cluster.\n"
    )
    text = answered("May operators have admin access to the project of the rehearsal cluster?", ("access.md", page))
    assert text.index("We give admin") < text.index("Never give") < text.index("The operators may")


def test_words_in_the_target_of_a_link_are_no_words_of_the_page() -> None:
    terms = question_terms("Does the frontend grow?", [])
    assert (
        terms.words_in("Read [the page](/repos/frontend/(a)/grow.html) and [this one](https://frontend.example).")
        == set()
    )
    assert terms.words_in("[The frontend](/x) grows (see below).") == {"frontend", "grow"}


def test_definitions_of_links_are_not_quoted() -> None:
    page = '# Slots\n\n[slots-disk]: ../slots/#disk\n[slots-full]: https://slots.example/disk "Full"\n'
    said = "[slots]: the disk is full of slots"
    assert answered("Why is the disk full of slots?", ("slots.md", f"{page}\n{said}\n")).startswith(said)
    assert [unit.kind for unit in units(f"{page}\n{said}")] == ["heading", "markup", "paragraph"]


def test_prohibition_comes_before_a_sentence_that_says_as_much() -> None:
    allowed, never = "Somebody may purge the queue of the relay.", "Never purge the queue of the relay."
    for question, wins in (("May I purge the queue of the relay?", never), ("Who purges the relay's queue?", allowed)):
        sought, section = whole(question, ("relay.md", f"{allowed}\n\n{never}\n"))
        made = excerpt(sought, section, len(allowed) + 2)
        assert made
        assert made.text == wins


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


def test_a_section_is_ahead_of_those_ranked_after_it() -> None:
    failure = "the slot grows while its replica is down"
    selected = select(failure, hits_of(failure, ("slots.md", SLOTS), ("exits.rst", EXITS)), failure=True)
    assert selected is not None
    assert len(selected.ranked) > 2
    ahead = [selected.features_of(one, (one.excerpt,))["ahead"] for one in selected.ranked[:2]]
    assert min(ahead) > 0


def test_a_conditional_step_is_summarised_with_its_act() -> None:
    steps = ("1. If they hang in `io_wait`, fail it over: on the partner.", "2. Ist es gesetzt, das Konto entsperren.")
    summary = "Drained: If they hang in `io_wait`, fail it over; Ist es gesetzt, das Konto entsperren"
    assert summary_of(("Drained",), steps) == summary


def test_a_summary_keeps_the_options_of_a_command() -> None:
    steps = ("1. Renew it with `cert renew --client reader -y`.", "2. Restart it - the reader alone.")
    assert summary_of((), steps) == "Renew it with `cert renew --client reader -y`; Restart it"


@given(st.lists(st.text(max_size=200)), st.lists(st.text(max_size=200)))
def test_summary_is_one_line_within_its_limit(headings: list[str], steps: list[str]) -> None:
    summary = summary_of(headings, steps)
    assert summary is None or (0 < len(summary) <= LIMIT_CHARS and len(summary.splitlines()) == 1)


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
