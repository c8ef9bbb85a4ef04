"""Erasures, and the places in which a word is left."""

from typing import Any

from memory_service.house import PERSON, House
from memory_service.leaves import leaf_bodies

from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Write

MARK = "zebrafinch"


async def erase(house: House, project: str, scope: str, what: str, **more: Any) -> dict[str, Any]:
    erasure_id = new_id()
    body = {"scope": scope, "what": what, "reason": "asked for", **more}
    origin = house.standing(project, principal=PERSON)
    await house.apply("router", origin, writes=(Write(store="erasures", id=erasure_id, body=body),))
    done = await house.body(project, "erasures", erasure_id)
    assert done is not None
    assert done["state"] == "erased"
    return done


async def everywhere(house: House, project: str, text: str) -> list[str]:
    """Every table that holds a text anywhere in a project's rows."""
    async with house.superuser() as connection:
        tables = await connection.fetch(
            "SELECT table_name FROM information_schema.columns"
            " WHERE table_schema = 'public' AND column_name = 'project' GROUP BY 1"
        )
        holding = []
        for row in tables:
            name = row["table_name"]
            found = await connection.fetchval(
                f"SELECT count(*) FROM {name} t WHERE project = $1 AND t::text ILIKE '%' || $2 || '%'", project, text
            )
            if found:
                holding.append(name)
        if any(text.lower() in body.lower() for body in await leaf_bodies(connection, "project = $1", project)):
            holding.append("audit")
    return holding
