"""Lessons through all services: learned in one project, kept as pages, and known in another."""

from pathlib import Path

import httpx
import pytest
from flows.lesson_keeper import Keeper
from flows.questions import settled

from counterpoint.local.stack import Stack

ERROR = "OperationalError: could not connect to server db-{}.internal:5432: too many clients already"
FIX = "Raise max_connections of the pooler to 400 and restart it."
TABLE = f"""error,tried,outcome,when,by,note,id
"{ERROR.format(1)}",{FIX},fixed,2026-03-04,ada,"The pooler <b>was</b> ![small](http://x.example)",1
"Kerberos ticket expired on node 4",Renewed it,did not help,2026-03-03,bob,,2
"""
NOTE = "Closed the sessions that a job had left open."


def pages(folder: Path) -> dict[str, bytes]:
    """The pages of a folder by name."""
    return {path.name: path.read_bytes() for path in folder.glob("*.md")}


async def resolved(http: httpx.AsyncClient, project: str) -> str:
    """A task that a person solved: a proposal that did not help, then something else."""
    body = {"kind": "troubleshoot", "description": "The nightly load stops.", "error_message": ERROR.format(2)}
    task_id = (await http.post("/v1/tasks", json=body | {"project": project})).raise_for_status().json()["task_id"]
    await settled(http, project, task_id)
    outcome = {"outcome": "succeeded", "by": "something_else", "note": NOTE}
    await http.post(f"/v1/tasks/{task_id}/outcome", params={"project": project}, json=outcome)
    while True:
        shown = await http.get(f"/v1/tasks/{task_id}", params={"project": project, "wait": "30"})
        if shown.raise_for_status().json()["state"] == "completed":
            return str(task_id)


async def test_lessons_move_to_another_project_and_back_to_the_same_bytes(
    stack: Stack, http: httpx.AsyncClient, project: str, tmp_path: Path
) -> None:
    keep, other = Keeper(stack), f"{project}-b"
    (tmp_path / "past.csv").write_text(TABLE)
    await keep("ingest", str(tmp_path / "past.csv"), "--type", "troubleshooting", project=project)
    task_id = await resolved(http, project)

    first, second = tmp_path / "first", tmp_path / "second"
    code, report = await keep("lessons", "export", str(first), project=project)
    assert (code, report["problems"]) == (0, [])
    assert [each["status"] for each in report["pages"]] == ["added"] * 3
    assert task_id in [each["lesson"] for each in report["pages"]]
    code, report = await keep("lessons", "export", str(first), project=project)
    assert [each["status"] for each in report["pages"]] == ["unchanged"] * 3
    code, report = await keep("lessons", "import", str(first), project=project)
    assert {each["status"] for each in report["attempts"]} == {"unchanged"}

    code, report = await keep("lessons", "import", str(first), "--dry-run", project=other)
    assert (code, {each["status"] for each in report["attempts"]}) == (0, {"added"})
    code, report = await keep("lessons", "export", str(second), project=other)
    assert report["pages"] == []
    code, report = await keep("lessons", "import", str(first), project=other)
    assert (code, {each["status"] for each in report["attempts"]}) == (0, {"added"})
    await keep("lessons", "export", str(second), project=other)
    assert pages(second) == pages(first)
    code, report = await keep("lessons", "import", str(second), project=other)
    assert {each["status"] for each in report["attempts"]} == {"unchanged"}

    body = {"kind": "troubleshoot", "description": "The load stops.", "error_message": ERROR.format(7)}
    new = (await http.post("/v1/tasks", json=body | {"project": other})).raise_for_status().json()["task_id"]
    task = await settled(http, other, new)
    assert {each["tried"] for each in task["findings"]["similar_attempts"]} >= {FIX, NOTE}


async def test_an_edit_is_an_attempt_of_who_imports_it_and_a_deleted_page_is_reported(
    stack: Stack, http: httpx.AsyncClient, project: str, tmp_path: Path
) -> None:
    administrator = Keeper(stack)
    (tmp_path / "past.csv").write_text(TABLE)
    await administrator("ingest", str(tmp_path / "past.csv"), "--type", "troubleshooting", project=project)
    folder = tmp_path / "lessons"
    await administrator("lessons", "export", str(folder), project=project)
    edited = next(path for path in folder.glob("*.md") if FIX in path.read_text())
    edited.write_text(edited.read_text().replace(FIX, f"{FIX} Tell the pool's owner."))
    gone = next(path for path in folder.glob("*.md") if path != edited)
    gone.unlink()

    code, report = await administrator("lessons", "export", str(folder), project=project)
    assert code == 1
    assert [problem for problem in report["problems"] if "import it first" in problem]
    assert "Tell the pool's owner." in edited.read_text()
    gone.unlink()

    grant = {"name": f"maria-{project}", "kind": "person", "projects": [project], "roles": ["read", "ingest"]}
    made = (await http.post("/v1/principals", json=grant)).raise_for_status().json()
    maria = Keeper(stack, made["token"])
    code, report = await maria("lessons", "import", str(folder), project=project)
    assert (code, [each["status"] for each in report["attempts"]]) == (0, ["edited"])
    assert len(report["without_page"]) == 1
    shown = (await http.get("/v1/attempts", params={"project": project})).raise_for_status().json()["items"]
    by = {each["tried"]: (each["by"], each["integrity"]) for each in shown}
    assert by[f"{FIX} Tell the pool's owner."] == (f"maria-{project}", 2)
    assert by[FIX] == ("ada", 2)
    code, report = await maria("lessons", "import", str(folder), project=project)
    assert [each["status"] for each in report["attempts"]] == ["unchanged"]
    code, report = await administrator("lessons", "export", str(folder), project=project)
    assert (code, sorted(each["status"] for each in report["pages"])) == (0, ["added", "replaced"])
    assert edited.read_text().count("### Attempt") == 2


async def test_rights_and_broken_pages_are_named(
    stack: Stack, http: httpx.AsyncClient, project: str, tmp_path: Path
) -> None:
    administrator = Keeper(stack)
    (tmp_path / "past.csv").write_text(TABLE)
    await administrator("ingest", str(tmp_path / "past.csv"), "--type", "troubleshooting", project=project)
    folder = tmp_path / "lessons"
    grant = {"name": f"kim-{project}", "kind": "person", "projects": [project], "roles": ["ingest"]}
    made = (await http.post("/v1/principals", json=grant)).raise_for_status().json()
    code, report = await Keeper(stack, made["token"])("lessons", "export", str(folder), project=project)
    assert (code, report["status"]) == (1, 403)
    assert not folder.exists()

    await administrator("lessons", "export", str(folder), project=project)
    broken, good = sorted(folder.glob("*.md"))
    broken.write_text(broken.read_text().replace("outcome: ", "outcome: un"))
    code, report = await administrator("lessons", "import", str(folder), project=f"{project}-b")
    assert code == 1
    (problem,) = report["problems"]
    assert (problem["file"], problem["field"]) == (broken.name, "attempts.1.outcome")
    assert broken.read_text().split("\n")[problem["line"] - 1].strip(" -").startswith("outcome")
    assert [(each["file"], each["status"]) for each in report["attempts"]] == [(good.name, "added")]


@pytest.mark.parametrize("words", [["export", "x", "--since", "soon"], ["import", "missing"]])
async def test_a_wrong_argument_is_a_usage_error(stack: Stack, project: str, words: list[str]) -> None:
    code, report = await Keeper(stack)("lessons", *words, project=project)
    assert code == 2
    assert words[-1] in report["title"]
