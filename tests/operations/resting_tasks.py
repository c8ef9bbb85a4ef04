"""Tasks that rest on a document, for take-backs."""

from memory_service.house import PERSON, House

from counterpoint.proto.memory import Dependents, MemoryRadius

EARLIER = """
WITH gone AS (DELETE FROM read_sets WHERE project = $1 RETURNING commit_id, cause, reads)
INSERT INTO sources (project, store, id, version, commit_id, cited, used, shared)
SELECT $1, item ->> 0, item ->> 1, (item ->> 2)::int, commit_id, coalesce(item ->> 4, '') IN ('cited', 'quoted'),
       coalesce(item ->> 4, '') = 'cited', coalesce(item ->> 5, 'false')::boolean
FROM gone, jsonb_array_elements(reads) AS item WHERE item ->> 4 IS DISTINCT FROM 'carried'
UNION ALL SELECT $1, 'commits', cause::text, 1, commit_id, true, false, false FROM gone
WHERE cause IS NOT NULL AND NOT reads @> '[["commits"]]'
"""
"""Turns the read sets of a project into `sources`, as an earlier release did after their retention."""


async def resting(
    house: House, project: str, store: str, record: str, version: int = 1
) -> dict[tuple[str, str, int], int]:
    query = Dependents(store=store, id=record, version=version)
    found = await house.answer("router", house.standing(project, principal=PERSON), query)
    if found.report is None:
        return {}
    radius = MemoryRadius.model_validate(found.report)
    return {(each.store, each.id, each.version): each.hops for each in radius.items}
