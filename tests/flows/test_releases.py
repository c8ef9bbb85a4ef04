"""A value that was refused by mistake: a person releases it by its fingerprint, and what was refused goes its way."""

import asyncio
import json
import re
import sys
from pathlib import Path

import httpx
from flows.conftest import Outsider

from counterpoint.local.stack import Stack

COMMAND = Path(sys.executable).with_name("counterpoint")
SETTING = 'Why is clientKey = "' + "k8Vqz3Lw9Xp2Rt5Yb7Nc4Md6" + '" not taken?'


def fingerprint_of(text: str) -> str:
    found = re.search(r"fingerprint ([0-9a-f]{16})", text)
    assert found is not None, text
    return found[1]


async def test_a_refused_task_is_retried_after_its_release(
    http: httpx.AsyncClient, outsider: Outsider, stack: Stack, project: str
) -> None:
    task = {"kind": "question", "error_message": SETTING, "description": "Why?", "task_id": "held"}
    await outsider.submit(project, task)
    rejected = await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.rejected")
    assert (rejected["code"], [error["field"] for error in rejected["errors"]]) == ("sensitive", ["error_message"])
    (letter,) = (await http.get("/v1/dead-letters", params={"project": project})).json()["items"]
    assert SETTING in json.loads(letter["body"])["error_message"]

    fingerprint = fingerprint_of(rejected["errors"][0]["problem"])
    words = ("release", fingerprint, "--reason", "a name", "--project", project, "--json")
    told = await asyncio.create_subprocess_exec(
        COMMAND, *words, "--data-dir", str(stack.data_dir), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(told.communicate(), 60)
    assert told.returncode == 0, output
    assert json.loads(output)["fingerprint"] == fingerprint
    listed = (await http.get("/v1/releases", params={"project": project})).json()["items"]
    assert [(one["fingerprint"], one["reason"]) for one in listed] == [(fingerprint, "a name")]

    await http.post(f"/v1/dead-letters/{letter['dead_letter_id']}/retry", params={"project": project})
    submitted = await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.submitted")
    assert submitted["task_id"] == "held"


async def test_over_http_the_refusal_names_the_fingerprint_and_revoking_ends_the_release(
    http: httpx.AsyncClient, project: str
) -> None:
    body = {"kind": "question", "description": SETTING, "project": project}
    refused = await http.post("/v1/tasks", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "sensitive")
    assert [error["field"] for error in refused.json()["errors"]] == ["description"]
    assert "k8Vqz3" not in refused.text
    release = {"fingerprint": fingerprint_of(refused.text), "reason": "a name", "project": project}
    params = {"project": project}
    assert (await http.post("/v1/releases", json=release)).status_code == 201, "of the project that the body names"
    assert (await http.post("/v1/releases", json=release, params=params)).status_code == 409
    assert (await http.post("/v1/tasks", json=body)).status_code == 202
    gone = f"/v1/releases/{release['fingerprint']}"
    taken = await http.delete(gone, params=params)
    assert taken.status_code == 200, taken.text
    assert (await http.delete(gone, params=params)).status_code == 404
    assert (await http.post("/v1/tasks", json=body)).status_code == 422
    assert (await http.post("/v1/releases", json=release, params=params)).status_code == 201, "it can be released again"


async def test_only_persons_release(http: httpx.AsyncClient, stack: Stack, project: str) -> None:
    named = {"name": f"bot-{project}", "kind": "system", "roles": ["operate"], "projects": [project]}
    made = await http.post("/v1/principals", json=named)
    assert made.status_code == 201, made.text
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as bot:
        release = {"fingerprint": "0" * 16, "reason": "it says so"}
        assert (await bot.post("/v1/releases", json=release, params={"project": project})).status_code == 403


async def test_a_redacted_value_is_redacted_for_readers_and_watchers(
    http: httpx.AsyncClient, outsider: Outsider, project: str
) -> None:
    number = "5105 1051 0510 5100"
    await outsider.submit(
        project, {"kind": "question", "description": f"Why is {number} declined?", "title": number, "task_id": "card"}
    )
    submitted = await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.submitted")
    assert submitted["title"] == "[redacted:card]"
    await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.escalated")
    for path in ("/v1/tasks/card", "/v1/tasks/card/line"):
        text = (await http.get(path, params={"project": project})).text
        assert number not in text
        assert "[redacted:card]" in text
    assert number not in json.dumps([body for _, _, body in outsider.seen])
