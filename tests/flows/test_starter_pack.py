"""The starter pack on a running house: off, installed without anybody's word, accepted by a person, removed."""

from typing import Any

import httpx
from flows.lesson_keeper import Keeper
from flows.questions import settled

from counterpoint.local.stack import Stack

DEADLOCK = "psycopg.errors.DeadlockDetected: deadlock detected\nDETAIL:  Process 7 waits for ShareLock on transaction 3"
STEP = "lock in one order everywhere"


async def troubleshoot(http: httpx.AsyncClient, project: str) -> dict[str, Any]:
    """A failure that a page of the pack is about."""
    body = {"kind": "troubleshoot", "description": "Booking fails", "error_message": DEADLOCK, "project": project}
    task_id = (await http.post("/v1/tasks", json=body)).raise_for_status().json()["task_id"]
    return await settled(http, project, task_id)


async def test_the_pack_is_untrusted_until_a_person_accepts_it_and_can_be_removed(
    stack: Stack, http: httpx.AsyncClient, project: str
) -> None:
    keep = Keeper(stack)

    async def starter(*words: str) -> tuple[int, dict[str, str]]:
        code, report = await keep("lessons", "starter", *words, project=project)
        return code, {each["system"]: each.get("state") or each["status"] for each in report["pages"]}

    code, listed = await starter("list")
    assert (code, set(listed.values())) == (0, {"off"})
    assert await starter("accept", "--only", "postgresql") == (0, {"postgresql": "kept"})
    assert await starter("install", "--only", "postgresql") == (0, {"postgresql": "added"})
    assert await starter("install", "--only", "postgresql") == (0, {"postgresql": "unchanged"})
    found = await troubleshoot(http, project)
    assert {each["source_path"] for each in found["findings"]["citations"]} == {"starter/postgresql.md"}
    assert STEP not in (found.get("proposal") or "")
    assert (await starter("list", "--only", "postgresql"))[1] == {"postgresql": "installed"}

    assert await starter("accept", "--only", "postgresql") == (0, {"postgresql": "replaced"})
    assert await starter("install", "--only", "postgresql") == (0, {"postgresql": "kept"})
    assert (await starter("list", "--only", "postgresql"))[1] == {"postgresql": "accepted"}
    assert STEP in (await troubleshoot(http, project))["proposal"]

    assert (await starter("remove"))[1]["postgresql"] == "deleted"
    assert set((await starter("list"))[1].values()) == {"off"}
    shown = await http.get("/v1/documents", params={"project": project})
    assert shown.raise_for_status().json()["items"] == []


async def test_a_page_of_the_project_with_the_same_source_is_left_alone(
    stack: Stack, http: httpx.AsyncClient, project: str
) -> None:
    page = {"source": "starter/dbt.md", "text": "# Ours"}
    (await http.post("/v1/documents", json={"documents": [page], "project": project})).raise_for_status()
    for words in (("install",), ("accept",), ("remove",)):
        code, report = await Keeper(stack)("lessons", "starter", *words, "--only", "dbt", project=project)
        assert (code, report["pages"][0]["status"]) == (0, "kept")
    code, report = await Keeper(stack)("lessons", "starter", "install", "--only", "cobol", project=project)
    assert (code, "not cobol" in report["title"]) == (2, True)
