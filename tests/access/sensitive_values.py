"""Sensitive values, their fingerprints and releases, and the tables that have one."""

import re

from memory_service.house import PERSON, House
from memory_service.leaves import leaf_bodies

from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Origin, Refusal, Write

CARD, MAIL, ADDRESS = "5105 1051 0510 5100", "ann.lee@example.org", "10.1.2.3"
GENERIC = 'clientKey = "' + "k8Vqz3Lw9Xp2Rt5Yb7Nc4Md6" + '"'
KEY = "AKIA" + "Z7QF3MPLKD2WXYTB"


async def tables_with(house: House, project: str, value: str) -> set[str]:
    """The tables of the record in which a project has a text, in whatever column."""
    async with house.superuser() as connection:
        names = await connection.fetch(
            "SELECT table_name AS name FROM information_schema.columns JOIN information_schema.tables"
            " USING (table_schema, table_name)"
            " WHERE table_schema = 'public' AND column_name = 'project' AND table_type = 'BASE TABLE'"
        )
        found = {
            row["name"]
            for row in names
            if await connection.fetchval(
                f'SELECT EXISTS (SELECT FROM "{row["name"]}" t WHERE project = $1 AND strpos(t::text, $2) > 0)',
                project,
                value,
            )
        }
        bodies = await leaf_bodies(connection, "project = $1", project)
        return found | ({"audit"} if any(value in body for body in bodies) else set())


def released_by(house: House, project: str, who: str = PERSON) -> Origin:
    return house.standing(project, principal=who)


def release(fingerprint: str) -> Write:
    body = {"fingerprint": fingerprint, "reason": "a checksum", "released_by": PERSON, "released_at": "2026-11-20"}
    return Write(store="releases", id=new_id(), body=body)


def fingerprint_of(refusal: Refusal) -> str:
    (problem,) = refusal.problems
    found = re.search(r"\(fingerprint ([0-9a-f]{16})\)", problem.problem)
    assert found is not None, problem
    return found[1]
