"""The diode decides like an independent reference: over 1,000,000 accesses, half of them one field from allowed."""

from collections import Counter
from pathlib import Path

import pytest
from access import policy_reference as reference
from access.access_cases import DOMAINS, agree, enumerated, judged, sampled
from access.policy_reference import Case, refusals

from counterpoint.guard.policy import policy
from counterpoint.memory.access import diode

SHORT, WHOLE = 100_000, 1_000_000
RULES = {
    *("audience", "expired", "message", "project", "task", "store", "send", "agent"),
    *("label", "own", "foreign", "role", "grant", "ended"),
}
in_full = (pytest.mark.slow, pytest.mark.timeout(1800))


@pytest.mark.parametrize("count", [SHORT, pytest.param(WHOLE, marks=in_full)])
def test_no_disagreement_over_a_sample_and_each_rule_is_the_only_reason_in_a_thousandth_of_it(count: int) -> None:
    sole: Counter[str] = Counter()
    near = allowed = 0
    for number, (case, rules, beside) in enumerate(sampled(count, 1)):
        answer = judged(diode, case)
        assert agree(answer, rules), f"{case}: {answer}, but {rules}"
        allowed += not rules
        if len(rules) == 1:
            sole[next(iter(rules))] += 1
        if beside is not None:
            near += sum(ours != theirs for ours, theirs in zip(case, beside, strict=True)) == 1
            if number % 97 == 0:
                assert not refusals(beside)
    assert near == count // 2
    assert set(sole) == RULES
    assert min(sole.values()) * 1000 >= count, sole
    assert allowed * 20 >= count


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_disagreement_over_all_that_differs_in_a_field_from_a_plain_access() -> None:
    for case in enumerated():
        rules, answer = refusals(case), judged(diode, case)
        assert agree(answer, rules), f"{case}: {answer}, but {rules}"


def test_every_field_of_an_access_is_varied() -> None:
    assert tuple(DOMAINS) == Case._fields


def test_the_reference_is_short_and_knows_nothing_of_ours() -> None:
    text = Path(reference.__file__).read_text()
    assert len(text.splitlines()) <= 100
    assert "counterpoint." not in text.replace('"counterpoint.decision.made.v1"', "")


def test_a_message_of_a_type_that_is_not_known_any_more_is_not_late() -> None:
    assert diode.read_after_end(policy(), "counterpoint.task.gone.v1", "tasks") == "ended"
    assert not diode.after_end(policy(), "counterpoint.task.gone.v1", ["tasks"], [])
