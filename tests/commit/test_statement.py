"""The parameters and faults of the commit statement are those of the SQL that it calls."""

import re

import pytest
from memory_service.house import House

from counterpoint.memory.commit import statement
from counterpoint.memory.commit.statement import Fault
from counterpoint.memory.record import functions

TYPES = {
    "step_row": statement.StepRow,
    "cancelled_timer_row": statement.CancelledTimerRow,
    "write_row": statement.WriteRow,
    "message_row": statement.MessageRow,
    "vector_row": statement.VectorRow,
    "embedding_row": statement.EmbeddingRow,
}
_ATTRIBUTES = """
SELECT a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 ORDER BY a.attnum
"""


@pytest.mark.parametrize("name", sorted(TYPES))
async def test_a_parameter_has_the_attributes_of_its_type_in_their_order(house: House, name: str) -> None:
    async with house.superuser() as connection:
        rows = await connection.fetch(_ATTRIBUTES, functions.SCHEMA, name)
    assert tuple(row["attname"] for row in rows) == TYPES[name]._fields


def test_every_fault_of_the_statement_is_described_in_its_header() -> None:
    header, _, body = functions.SQL.partition("CREATE TYPE")
    described = dict(re.findall(r"^--   (CP\d{3}) (\w+)", header, re.MULTILINE))
    raised = set(re.findall(r"ERRCODE = '(CP\d{3})'", body))
    assert described == {fault.value: fault.name.lower() for fault in Fault if fault < "CP100"}
    assert raised == set(described)
    caught = set(re.findall(r"SQLSTATE '(CP\d{3})'", body))
    assert caught == raised - {Fault.LEASE_LOST}
