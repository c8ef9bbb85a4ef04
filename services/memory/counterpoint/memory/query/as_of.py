"""Answers as of a past moment."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.query.item_view import item, projects, ref, visible
from counterpoint.memory.query.moments import moment, then
from counterpoint.memory.search.hybrid import EXACT_ROWS
from counterpoint.memory.search.vectors import EmbeddedTexts
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Filter, Get, HybridSearch, Item, Line, List, QueryPlan, QueryResult, VectorSearch


class AsOfReader:
    """Reads of stores as of a moment, for one grant."""

    def __init__(self, policy: Policy, embeddings: EmbeddingPipeline) -> None:
        self._policy = policy
        self._embeddings = embeddings

    async def answer(
        self,
        connection: Any,
        grant: Grant,
        query: Get | List | Line | VectorSearch | HybridSearch,
        as_of: str,
        embedded: EmbeddedTexts,
    ) -> QueryResult:
        """Answer a query as of a moment. A search compares the newest records of that moment by their vectors alone."""
        at = await moment(connection, grant.project, as_of)
        positions = at.positions(projects(self._policy, grant, "actions" if isinstance(query, Line) else query.store))
        match query:
            case Get():
                sql, values = then(List(store=query.store, limit=1), positions, query.id)
            case List():
                sql, values = then(query, positions)
            case Line():
                line = List(store="actions", task_id=query.task_id, ascending=not query.newest_first, limit=1000)
                sql, values = then(line.model_copy(update={"limit": query.limit}), positions)
            case VectorSearch() | HybridSearch():
                everything = List(store=query.store, where=query.where).model_copy(update={"limit": EXACT_ROWS})
                sql, values = then(everything, positions)
                if "metadata" in query.where:
                    raise Permanent(
                        ErrorCode.INVALID, (Problem(field="where.metadata", problem="is not available with as_of"),)
                    )
        rows = await connection.fetch(sql, *values)
        if isinstance(query, Get):
            rows = sorted(rows, key=lambda row: row["project"] != grant.project)[:1]
        visible_rows = [row for row in rows if visible(self._policy, grant, row)]
        erased = tuple(ref(row) for row in visible_rows if row["body"] is None)
        current_rows = [row for row in visible_rows if row["body"] is not None]
        if isinstance(query, VectorSearch | HybridSearch):
            current_rows = [row for row in current_rows if _within(query, row)]
            items = await self._nearest(grant, query, embedded, current_rows[:EXACT_ROWS])
            partial = len(rows) > EXACT_ROWS
            return QueryResult(
                items=items, tier="vector", plan=QueryPlan.AS_OF_EXACT, took_us=0, erased=erased, partial=partial
            )
        items = tuple(item(row) for row in current_rows)
        cursor = None
        if isinstance(query, List) and len(rows) > query.limit:
            cursor = rows[query.limit - 1]["seq"]
            items = tuple(each for each in items[: query.limit])
        return QueryResult(
            items=items[: getattr(query, "limit", 1)], tier="record", plan=QueryPlan.AS_OF, took_us=0, erased=erased,
            next_cursor=cursor,
        )  # fmt: skip

    async def _nearest(
        self, grant: Grant, query: VectorSearch | HybridSearch, embedded: EmbeddedTexts, rows: Sequence[Any]
    ) -> tuple[Item, ...]:
        texts = [self._embeddings.text(query.store, row["body"]) for row in rows]
        if not texts:
            return ()
        vectors, _ = await self._embeddings.of(
            grant.project, texts, max(row["label"] for row in rows), model=embedded.model
        )
        cosines = np.stack(vectors) @ embedded[query.text]
        best = sorted(range(len(rows)), key=lambda n: (-float(cosines[n]), rows[n]["id"]))[: query.k]
        return tuple(item(rows[n], float(cosines[n]), {"cosine": float(cosines[n])}) for n in best)


def _within(query: Filter, row: Any) -> bool:
    return (
        (query.under is None or str(row["body"].get("source", "")).startswith(query.under))
        and (query.since is None or row["at"] >= query.since)
        and (query.until is None or row["at"] < query.until)
    )
