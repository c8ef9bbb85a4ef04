"""Procedures: the section that names, quotes or resembles a failure, and its steps."""

from dataclasses import replace

import pytest
from agents.section_pages import CURVE, EXITS, SLOTS, answered, hits_of

from counterpoint.developer.excerpts.likelihood import likelihood_model
from counterpoint.developer.excerpts.relevance import hits
from counterpoint.developer.excerpts.selection import select
from counterpoint.developer.excerpts.summaries import LIMIT_CHARS
from counterpoint.developer.language.codes import codes_of, common_codes, first_code_in
from counterpoint.developer.policies.procedures import procedures


def test_procedure_comes_whole_in_order_with_its_warning() -> None:
    text = answered("A slot grows because its replica is behind. What do I do?")
    places = [text.index(each) for each in ("Never drop", "1. Look", "2. Start", "3. If it cannot")]
    assert places == sorted(places)


def test_failure_is_answered_by_the_section_that_names_its_exit_code() -> None:
    failure = "The loader stops\nloader exited with exit code 74"
    best, *_ = procedures(failure, hits_of(failure, ("exits.rst", EXITS), cosine=0.2))
    assert best.code == "exit code 74"
    assert best.likely
    places = [best.text.index(each) for each in ("Exit code 74", "1. Look", "2. Ask", "Do not retry by hand")]
    assert places == sorted(places)
    assert "137" not in best.text


DAMAGED = """# Amber

## Data files are damaged

A disk of Amber lost power while it wrote, and the file system did not write the last blocks, which Amber reports at its
next start, on each node whose disk was affected.

1. Stop every writer of Amber, and note which of them were running, since they start again by themselves later.
2. Copy the damaged data files to another disk before anything is changed, and write down where they are.
3. Restore the last snapshot that was verified into an empty folder, as the user of Amber and of no one else.
4. Start one node alone, compare the number of its rows with that of the day before, then start the others.
5. Report the disk that lost power, and leave it out of the list of disks in `amber.toml` until it was replaced.
6. Read the journal of the last hour again, since its entries may be on the disk that was left out, by `amber replay`.
"""
ALSO_DAMAGED = """# Basalt

## Data files are damaged

A disk of Basalt lost power while it wrote, and the last blocks of its data files were not written, which Basalt reports
when it does not start.

1. Copy the damaged data files to another disk before anything is changed, since a repair that fails changes them too.
2. Run `basalt repair` over the damaged data files as their owner, and read its report, which lists each lost block.
3. Start Basalt, and look for the lost blocks in the export of the last night, which has all that was written before.
"""


def test_no_step_gives_way_to_a_section_that_is_nearly_as_good() -> None:
    failure = "Amber does not start: the data files are damaged after a disk lost power"
    best, *_ = procedures(failure, hits_of(failure, ("amber.md", DAMAGED), ("basalt.md", ALSO_DAMAGED)))
    assert best.source == "amber.md"
    assert [step[:2] for step in best.numbered] == ["1.", "2.", "3.", "4.", "5.", "6."]


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


def test_untrusted_sections_are_no_procedures() -> None:
    failure = "loader exited with exit code 74"
    of = [hit.item.model_copy(update={"integrity": 0}) for hit in hits_of(failure, ("exits.rst", EXITS))]
    assert procedures(failure, hits(failure, of, CURVE)) == ()


TELEMETRY = "# Telemetry\n\nVessels send readings to mq.ferry.example (MQTT, port 8883) every minute.\n"


def test_a_page_that_shares_the_name_of_a_host_alone_is_no_procedure() -> None:
    failure = "nightly audit broke\nHTTPError: 507 from mq.ferry.example: certificate chain too deep"
    assert procedures(failure, hits_of(failure, ("telemetry.md", TELEMETRY))) == ()
    failure = "nightly audit broke\nHTTPError: 507 from mq.ferry.example: readings refused"
    assert procedures(failure, hits_of(failure, ("telemetry.md", TELEMETRY)))
