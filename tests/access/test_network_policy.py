"""The policy names who connects to what, completely and with known names alone."""

from typing import Any

import pytest
from pydantic import ValidationError

from counterpoint.guard.policy import ENGINES, Policy, policy


def changed(**network: list[str] | None) -> dict[str, Any]:
    """The policy with other rows under `network`."""
    document = policy().model_dump(mode="json")
    rows = document["network"] | network
    return document | {"network": {name: targets for name, targets in rows.items() if targets is not None}}


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        ({"lineage": ["postgresql"]}, "network.lineage: unknown postgresql"),
        ({"developer": ["manager.console"]}, "network.developer: unknown manager.console"),
        ({"stranger": ["nats"]}, "network: unknown stranger"),
        ({"memory": None}, "network: unknown memory"),
    ],
)
def test_a_row_that_is_unknown_or_missing_is_refused(network: dict[str, list[str] | None], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Policy.model_validate(changed(**network))


def test_memory_alone_reaches_the_databases() -> None:
    rules = policy()
    for engine in set(ENGINES) - {"nats"}:
        reaching = {name for name, targets in rules.network.items() if engine in targets} & set(rules.services)
        assert reaching == {"memory"}, engine
