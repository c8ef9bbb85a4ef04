"""The diode decides like an independent reference, over every combination that is near an allowed one and many more."""

from collections import Counter

import pytest
from diode.accesses import DOMAINS, agree, enumerated, judged, sampled
from diode.reference import Case, refusals

from counterpoint.memory import diode

SAMPLES, SEEDS = 30_000, (1, 2)
RULES = {
    *("audience", "expired", "message", "project", "task", "store", "send", "agent"),
    *("label", "own", "foreign", "role", "grant", "ended"),
}


def test_no_disagreement_over_the_enumeration_and_each_rule_is_the_only_reason_in_a_hundred_cases() -> None:
    sole: Counter[str] = Counter()
    allowed = 0
    for case in enumerated():
        rules, answer = refusals(case), judged(diode, case)
        assert agree(answer, rules), f"{case}: {answer}, but {rules}"
        allowed += not rules
        if len(rules) == 1:
            sole[rules.pop()] += 1
    assert set(sole) == RULES
    assert min(sole.values()) >= 100, sole
    assert allowed >= 1000


@pytest.mark.parametrize("seed", SEEDS)
def test_no_disagreement_over_a_sample_half_of_which_is_one_field_from_an_allowed_access(seed: int) -> None:
    near = 0
    for case, beside in sampled(SAMPLES, seed):
        rules, answer = refusals(case), judged(diode, case)
        assert agree(answer, rules), f"{case}: {answer}, but {rules}"
        if beside is not None:
            assert not refusals(beside)
            near += sum(ours != theirs for ours, theirs in zip(case, beside, strict=True)) == 1
    assert near == SAMPLES // 2


def test_every_field_of_an_access_is_varied() -> None:
    assert tuple(DOMAINS) == Case._fields
