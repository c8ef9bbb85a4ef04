"""Record reader: the records and lists of a request, read together."""

import operator
from collections.abc import Sequence
from typing import Any

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.query.item_view import projects
from counterpoint.memory.query.query_scope import is_record_read, read_statements
from counterpoint.memory.record.statements import joint, listing, records_by_key
from counterpoint.proto.memory import Get, List, MemoryQuery

_SEQ = operator.itemgetter("seq")


class RecordReader:
    """Rows of the `Get` and `List` queries of a request, all read at the first one."""

    def __init__(self, policy: Policy, grant: Grant, queries: Sequence[MemoryQuery]) -> None:
        self._policy = policy
        self._grant = grant
        self._queries = queries
        self._rows: dict[int, Sequence[Any]] | None = None

    async def rows(self, connection: Any, n: int) -> Sequence[Any]:
        """Return the rows of a query of the request by its index; a list has one more than its limit if there are
        more. Raises `Permanent` as `listing` does."""
        if self._rows is None:
            self._rows = await self._read(connection)
        return self._rows[n]

    async def _read(self, connection: Any) -> dict[int, Sequence[Any]]:
        gets = {n: each for n, each in enumerate(self._queries) if isinstance(each, Get) and is_record_read(each)}
        lists = {n: each for n, each in enumerate(self._queries) if isinstance(each, List) and is_record_read(each)}
        statements = [self._keys(list(gets.values()))] if gets else []
        statements += [listing(each, self._places(each.store)) for each in lists.values()]
        found: list[Sequence[Any]] = []
        for group in read_statements(statements):
            found += await _fetch(connection, group)
        by_key = {(row["store"], row["id"]): [row] for row in (found.pop(0) if gets else ())}
        rows: dict[int, Sequence[Any]] = {n: by_key.get((each.store, each.id), []) for n, each in gets.items()}
        for (n, each), of_list in zip(lists.items(), found, strict=True):
            rows[n] = sorted(of_list, key=_SEQ, reverse=not each.ascending)
        return rows

    def _keys(self, gets: Sequence[Get]) -> tuple[str, list[Any]]:
        wanted = list(dict.fromkeys((each.store, each.id) for each in gets))
        places = [self._places(store) for store, _ in wanted]
        keys = [(*key, len(visible) > 1) for key, visible in zip(wanted, places, strict=True)]
        statement, values = records_by_key(keys)
        return statement, [places[0][0], *values]

    def _places(self, store: str) -> list[str]:
        return projects(self._policy, self._grant, store)


async def _fetch(connection: Any, statements: Sequence[tuple[str, list[Any]]]) -> list[Sequence[Any]]:
    """Return the rows of each statement."""
    if len(statements) == 1:
        statement, values = statements[0]
        return [await connection.fetch(statement, *values)]
    statement, values = joint(statements)
    found: list[list[Any]] = [[] for _ in statements]
    for row in await connection.fetch(statement, *values):
        found[row["part"]].append(row)
    return list(found)
