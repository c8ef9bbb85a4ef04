"""Likelihoods are the same in every process: a process orders its sets of words in its own way."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
SCRIPT = """
from agents.section_pages import EXITS, SLOTS, hits_of
from counterpoint.developer.evidence.likeness import missing_weight, shared_share, words_of_error
from counterpoint.developer.excerpts.selection import select

QUESTIONS = (
    "Which replica is behind, and is it OK to drop the replication slot while its replica is down?",
    "How many gigabytes does an idle replication slot keep by default before the log is dropped?",
    "Which team is reached for billing, and which for the orders lake at the harbour?",
    "What does exit code 137 of the loader mean, and does a retry by hand skip the day?",
    "Where does the producer look up the key of an object that is missing in the bucket?",
    "Who starts the replica that cannot be copied anew when its slot grows overnight?",
)
ERRORS = tuple(words_of_error(question) for question in QUESTIONS)

for question in QUESTIONS:
    chosen = select(question, hits_of(question, ("slots.md", SLOTS), ("exits.rst", EXITS)))
    print(chosen and (chosen.likelihood, chosen.citations))
for earlier in ERRORS:
    print([(shared_share(earlier, current), missing_weight(earlier, current)) for current in ERRORS])
"""


def printed(hash_seed: int) -> str:
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(TESTS)}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_no_figure_depends_on_the_order_of_sets() -> None:
    first = printed(1)
    assert [printed(seed) for seed in (2, 3)] == [first, first]
