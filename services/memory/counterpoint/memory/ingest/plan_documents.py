"""Plans of agents as documents of their project.

It follows the record: a plan with a `path` becomes the document of that path. The document is derived from the plan, so
it is taken back with it, and what an agent wrote adds no confidence. A document that somebody ingested under the path
is never replaced.
"""

from typing import Any

import structlog

from counterpoint.memory.ingest.documents import Ingest
from counterpoint.memory.ingest.follower import Follower
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.stamps import DERIVED, Provenance
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ids import derived_id
from counterpoint.proto.ingest import TITLE_CHARS, Document
from counterpoint.proto.memory import Origin, Ref

log = structlog.get_logger()

_SQL = load_statements(__package__)


class PlanDocuments(Follower):
    """Follows plans."""

    name = "plans"
    stores = frozenset({"plans"})
    reached = "planned"

    def __init__(self, database: Database, ingest: Ingest) -> None:
        super().__init__(database)
        self._ingest = ingest

    async def _process(self, project: str, row: Any) -> None:
        body = row["body"] or {}
        path, text = body.get("path"), body.get("text")
        if not isinstance(path, str) or not isinstance(text, str):
            return
        async with self._database.reading(project) as connection:
            if not await connection.fetchval(
                _SQL["is_current_version"], project, row["store"], row["id"], row["version"]
            ):
                return  # A later version has a later position, and is processed there.
        ref = Ref(store=row["store"], id=row["id"], version=row["version"])
        stamps = Provenance(row["label"], min(row["integrity"], DERIVED), frozenset({ref}))
        document = Document(
            source=path,
            text=text,
            type="markdown",
            title=f"Provider plan: {body.get('system') or path}"[:TITLE_CHARS],
            metadata={"plan": row["id"], "task_id": body.get("task_id")},
        )
        origin = Origin(message_id=derived_id(project, row["id"], "document", row["version"]), project=project)
        stored = await self._ingest.derived(origin, ReadSet(stamps, {ref: None}, named=frozenset({ref})), document)
        if stored.status == "refused":
            raise Permanent(ErrorCode.INVALID, (Problem(field=path, problem=stored.problem or "was refused"),))
        log.info("plan.stored", plan_id=row["id"], document_id=stored.document_id, status=stored.status)
