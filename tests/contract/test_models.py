"""Traps of the models: whatever may be sent can be read again, and no text makes a validator fall over."""

from decimal import Decimal
from typing import Any

import pytest

from counterpoint.proto.errors import Permanent
from counterpoint.proto.findings import Findings
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import SubmitTask, TaskCompleted
from counterpoint.proto.validation import parse

TASK: dict[str, Any] = {"kind": "question", "description": "How long are orders kept?"}


@pytest.mark.parametrize("deadline", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"])
def test_a_time_that_leaves_the_calendar_is_refused_by_field(deadline: str) -> None:
    _refused("deadline", TASK | {"deadline": deadline})


def test_a_text_of_digits_is_no_time() -> None:
    _refused("deadline", TASK | {"deadline": "1700000000"})


@pytest.mark.parametrize("amount", ["1e999999999", "1" * 400, "0." + "1" * 400])
def test_an_amount_beyond_all_money_is_refused(amount: str) -> None:
    _refused("budget.usd", TASK | {"budget": {"usd": amount}})


def test_a_tiny_cost_is_told_as_a_decimal_string() -> None:
    end = TaskCompleted(
        task_id="t",
        resolution="answered",
        result="Seven years.",
        cost_usd=Decimal("0.0000001"),
        tokens=1,
        duration_ms=1,
        findings=Findings(),
    )
    assert end.model_dump(mode="json")["cost_usd"] == "0.0000001"


def test_optional_fields_of_messages_are_not_required() -> None:
    """Absent values are left out of what is sent, so a required field that may be None could not be read again."""
    faults = [
        f"{model.__name__}.{name}"
        for model in Message.register.values()
        for name, field in model.model_fields.items()
        if field.is_required() and type(None) in getattr(field.annotation, "__args__", ())
    ]
    assert faults == []


def _refused(field: str, body: dict[str, Any]) -> None:
    with pytest.raises(Permanent) as caught:
        parse(SubmitTask.TYPE, body)
    assert [problem.field for problem in caught.value.problems] == [field]
