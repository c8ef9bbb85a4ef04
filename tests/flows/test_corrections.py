"""A person's corrections: fixes, failed attempts and equal incidents, on a whole stack."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from flows.conftest import Outsider

ERROR = "billing.errors.LedgerLocked: ledger 4711 is locked by user batch_7"


async def escalated(http: httpx.AsyncClient, project: str, task_id: str) -> dict[str, Any]:
    body = {"kind": "troubleshoot", "description": "The invoice run stops", "error_message": ERROR, "task_id": task_id}
    answer = await http.post("/v1/tasks", json=body | {"project": project}, headers={"Prefer": "wait=30"})
    task: dict[str, Any] = answer.json()
    assert (task["state"], task["waiting_for"]) == ("input_required", "documents"), task
    return task


class Reporter:
    """Says something about tasks of one project and looks at what came of it."""

    def __init__(self, http: httpx.AsyncClient, project: str) -> None:
        self.http, self.params = http, {"project": project}

    async def say(self, task_id: str, what: str, **body: Any) -> None:
        answer = await self.http.post(f"/v1/tasks/{task_id}/{what}", json=body, params=self.params)
        assert answer.status_code == 202, answer.text

    async def until(self, task_id: str, **wanted: Any) -> dict[str, Any]:
        for _ in range(100):
            answer = await self.http.get(f"/v1/tasks/{task_id}", params=self.params | {"wait": 5})
            task: dict[str, Any] = answer.json()
            if wanted.items() <= task.items():
                return task
        raise AssertionError(task)

    async def attempts(self, task_id: str) -> list[dict[str, Any]]:
        answer = await self.http.get("/v1/attempts", params=self.params | {"task_id": task_id})
        items: list[dict[str, Any]] = answer.json()["items"]
        return sorted(items, key=lambda item: int(item["attempt"]))


async def test_the_cause_is_learned_with_its_reason_and_constraints(http: httpx.AsyncClient, project: str) -> None:
    ops = Reporter(http, project)
    await escalated(http, project, "first")
    given = {"instruction": "Reboot node 3", "reasoning": "it swaps", "constraints": ["Drain the queue first"]}
    await ops.say("first", "override", **given, confidence_override=True)
    await ops.until("first", state="input_required", waiting_for="outcome")
    (made,) = await ops.attempts("first")
    assert (made["tried"], made["reason"], made["constraints"]) == (
        "Reboot node 3",
        "it swaps",
        ["Drain the queue first"],
    )
    note = "none of it: the user was locked, unlocked batch_7"
    await ops.say("first", "outcome", outcome="succeeded", by="something-else", note=note)
    ended = await ops.until("first", state="completed")
    assert ended["result"] == note
    proposal, lesson = await ops.attempts("first")
    assert (proposal["outcome"], proposal["fixed_by"]) == ("superseded", "something_else")
    assert (lesson["tried"], lesson["outcome"], lesson["by_kind"]) == (note, "succeeded", "person")


async def test_the_reason_and_the_conditions_of_an_override_are_on_the_second_card(
    http: httpx.AsyncClient, project: str
) -> None:
    ops = Reporter(http, project)
    await escalated(http, project, "first")
    given = {"instruction": "Restart the ledger service", "reasoning": "its lock is stale"}
    constraints = ["Drain the queue first", "Do not reboot the host"]
    await ops.say("first", "override", **given, constraints=constraints, confidence_override=True)
    await ops.until("first", state="input_required", waiting_for="outcome")
    await ops.say("first", "outcome", outcome="succeeded")
    await ops.until("first", state="completed")
    body = {"kind": "troubleshoot", "description": "The invoice run stops", "error_message": ERROR, "project": project}
    answer = await http.post("/v1/tasks", json=body | {"task_id": "second"}, headers={"Prefer": "wait=30"})
    second = answer.json()
    assert second["waiting_for"] == "outcome", second
    for said in (*given.values(), *constraints):
        assert said in second["proposal"]


async def test_equal_failures_pairs_and_their_undo(http: httpx.AsyncClient, project: str) -> None:
    ops = Reporter(http, project)
    for task_id in ("one", "two"):
        await escalated(http, project, task_id)
    for note in ("restarted it", "restarted it twice"):
        await ops.say("one", "outcome", outcome="failed", note=note)
    again = await ops.until("one", waiting_for="override")
    assert (again["escalation"]["code"], again["escalation"]["to"]) == ("repeated_failure", "calling_llm")

    async def pairs() -> list[tuple[str, list[str]]]:
        items = (await http.get("/v1/links", params=ops.params)).json()["items"]
        return [(each["relation"], [side["task_id"] for side in each["pair"]]) for each in items]

    for relation in ("same", "different", "merged"):
        body = {"relation": relation, "tasks": ["one", "two"]}
        for _ in range(2):
            made = await http.post("/v1/links", json=body, params=ops.params)
            assert made.status_code == 201, made.text
        assert await pairs() == [(relation, ["one", "two"])]
        undo = {"relation": relation, "task": ["one", "two"]} | ops.params
        if relation != "merged":
            assert (await http.delete("/v1/links", params=undo)).status_code == 200
            assert await pairs() == []
    asking = (await http.get("/v1/escalations", params=ops.params)).json()["items"]
    assert [each["task_id"] for each in asking] == ["one"]
    await ops.say("one", "outcome", outcome="succeeded", note="unlocked batch_7")
    for task_id in ("one", "two"):
        assert (await ops.until(task_id, state="completed"))["result"] == "unlocked batch_7"


async def test_a_recovery_is_learned_as_no_fix_and_asks_for_the_change(
    http: httpx.AsyncClient, outsider: Outsider, project: str
) -> None:
    ops = Reporter(http, project)
    settings = await http.put("/v1/incident-settings", json={"quiet_s": 86_400, "shadow": True}, params=ops.params)
    assert settings.status_code == 200, settings.text
    job, now = {"namespace": "shop", "name": "invoices"}, datetime.now(UTC)
    said = [("FAIL", "r1", {"errorMessage": {"message": ERROR, "programmingLanguage": "java"}}), ("COMPLETE", "r2", {})]
    task_id = ""
    for second, (kind, run_id, facets) in enumerate(said):
        at = (now + timedelta(seconds=second)).isoformat()
        event = {"eventType": kind, "eventTime": at, "run": {"runId": run_id, "facets": facets}, "job": job}
        await outsider.publish(f"intake.{project}.lineage", json.dumps(event).encode())
        if kind == "FAIL":
            escalated = await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.escalated")
            task_id = escalated["task_id"]
    ended = await ops.until(task_id, state="completed")
    assert (ended["shadow"], ended["quiet_s"], ended["resolution"]) == (True, 86_400.0, "resolved")
    assert await ops.attempts(task_id) == []
    (asked,) = (await http.get("/v1/recoveries", params=ops.params)).json()["items"]
    assert (asked["task_id"], asked["needs"][0]["kind"]) == (task_id, "outcome")
    await ops.say(task_id, "outcome", outcome="succeeded", by="something_else", note="unlocked batch_7")
    for _ in range(1000):
        if not (await http.get("/v1/recoveries", params=ops.params)).json()["items"]:
            break
    (lesson,) = await ops.attempts(task_id)
    assert (lesson["tried"], lesson["outcome"], lesson["evidence"]) == ("unlocked batch_7", "succeeded", "reported")


async def decided(lines: AsyncIterator[str], what: str) -> str:
    """The task of lineage's next decision of this kind in a stream; its records are there with it."""
    async for line in lines:
        if line.startswith("data:"):
            said = json.loads(line.removeprefix("data:"))["data"]
            if (said["agent"], said["decision"]) == ("lineage", what):
                return str(said.get("task_id"))
    raise AssertionError(f"the stream has ended before {what}")


async def test_merged_incidents_of_two_jobs_are_one_card_until_it_is_undone(
    http: httpx.AsyncClient, outsider: Outsider, project: str
) -> None:
    now, here = datetime.now(UTC), {"project": project}

    async def fails(second: int, job: str) -> None:
        facets = {"errorMessage": {"message": f"{job}: certificate has expired", "programmingLanguage": "java"}}
        event = {
            "eventType": "FAIL",
            "eventTime": (now + timedelta(seconds=second)).isoformat(),
            "run": {"runId": f"r{second}", "facets": facets},
            "job": {"namespace": "shop", "name": job},
        }
        await outsider.publish(f"intake.{project}.lineage", json.dumps(event).encode())

    async def context(task_id: str) -> dict[str, Any]:
        answer = await http.get(f"/v1/tasks/{task_id}", params=here | {"wait": 30})
        found: dict[str, Any] = answer.json()["context"]
        return found

    async with http.stream("GET", "/v1/decisions/stream", params=here) as stream:
        lines = stream.aiter_lines()
        await anext(lines)
        tasks = []
        for second, job in enumerate(("load", "export")):
            await fails(second, job)
            tasks.append(await decided(lines, "opened"))
            await outsider.until(lambda on, said: on.endswith(".escalated") and said["task_id"] == tasks[-1])
        whole, part = tasks
        body = {"relation": "merged", "tasks": tasks} | here
        made = await http.post("/v1/links", json=body)
        assert made.status_code == 201, made.text
        await decided(lines, "joined_by_person")
        await fails(2, "export")
        assert await decided(lines, "joined") == part
        card = await context(whole)
        assert (card["repeats"]["count"], [row["name"] for row in card["merged"]]) == (3, ["export"])
        assert (await context(part))["merged_into"] == whole
        undone = await http.delete("/v1/links", params={"relation": "merged", "task": tasks} | here)
        assert undone.status_code == 200
        await decided(lines, "parted_by_person")
    first, second = await context(whole), await context(part)
    assert (first["repeats"]["count"], second["repeats"]["count"]) == (1, 2)
    assert (first["merged"], second["merged_into"]) == ([], "")


async def test_the_lesson_is_proposed_next_time_until_it_is_said_not_to_be_the_same(
    http: httpx.AsyncClient, project: str
) -> None:
    ops = Reporter(http, project)
    known = {"source": "incidents.csv", "error_message": ERROR, "by": "ada", "when": "2026-03-02T03:00:01Z"}
    told = known | {"tried": "Unlock batch_7 with ledgerctl unlock", "outcome": "succeeded"}
    made = await http.post("/v1/attempts", json={"incidents": [told], "project": project})
    attempt_id = made.json()["incidents"][0]["id"]
    body = {"kind": "troubleshoot", "description": "The invoice run stops", "error_message": ERROR, "project": project}

    async def submitted(task_id: str) -> dict[str, Any]:
        answer = await http.post("/v1/tasks", json=body | {"task_id": task_id}, headers={"Prefer": "wait=30"})
        task: dict[str, Any] = answer.json()
        return task

    first = await submitted("first")
    assert first["waiting_for"] == "outcome", first
    assert "ledgerctl unlock" in first["proposal"]

    await http.put("/v1/incident-settings", json={"shadow": True}, params=ops.params)
    unshown = await submitted("unshown")
    assert unshown["waiting_for"] == "outcome"
    assert "ledgerctl" not in json.dumps(unshown)
    await ops.say("unshown", "outcome", outcome="succeeded", note="unlocked batch_7 by ledgerctl unlock")
    await ops.until("unshown", state="completed")
    report = (await http.get("/v1/shadow", params=ops.params)).json()
    assert (report["proposed"], report["explained"], report["right"], report["due"]) == (1, 1, 1, False)
    await http.delete("/v1/incident-settings", params=ops.params)

    lessons = [each["attempt_id"] for each in await ops.attempts("unshown") if each["outcome"] == "succeeded"]
    await ops.say("first", "outcome", outcome="failed", not_same=[attempt_id, *lessons])
    apart = (await http.get("/v1/links", params=ops.params)).json()["items"]
    assert {each["relation"] for each in apart} == {"different"}
    again = await ops.until("first", state="input_required", waiting_for="documents")
    assert "ledgerctl" not in json.dumps(again.get("proposal"))
    assert attempt_id not in {one["id"] for one in again["findings"]["similar_attempts"]}


async def test_a_split_and_a_link_change_the_open_card(http: httpx.AsyncClient, project: str) -> None:
    ops = Reporter(http, project)
    known = {"source": "incidents.csv", "error_message": ERROR, "by": "ada", "when": "2026-03-02T03:00:01Z"}
    told = known | {"tried": "Unlock batch_7 with ledgerctl unlock", "outcome": "succeeded"}
    made = await http.post("/v1/attempts", json={"incidents": [told], "project": project})
    attempt_id = made.json()["incidents"][0]["id"]
    body = {"kind": "troubleshoot", "description": "The invoice run stops", "error_message": ERROR, "project": project}
    answer = await http.post("/v1/tasks", json=body | {"task_id": "open"}, headers={"Prefer": "wait=30"})
    assert "ledgerctl unlock" in answer.json()["proposal"]

    pair = {"relation": "different", "tasks": ["open", attempt_id]}
    split = await http.post("/v1/links", json=pair, params=ops.params)
    assert split.status_code == 201, split.text
    alone = await ops.until("open", state="input_required", waiting_for="documents")
    assert alone.get("proposal") is None
    assert attempt_id not in {one["id"] for one in alone["findings"]["similar_attempts"]}
    unsplit = await http.delete(
        "/v1/links", params=ops.params | {"relation": "different", "task": ["open", attempt_id]}
    )
    assert unsplit.status_code == 200, unsplit.text
    back = await ops.until("open", state="input_required", waiting_for="outcome")
    assert "ledgerctl unlock" in back["proposal"]

    other = {"description": "Printer on floor 2 is offline", "error_message": "lp0: no paper", "task_id": "other"}
    answer = await http.post("/v1/tasks", json=body | other, headers={"Prefer": "wait=30"})
    assert answer.json()["waiting_for"] == "documents"
    pair = {"relation": "same", "tasks": ["other", attempt_id]}
    link = await http.post("/v1/links", json=pair, params=ops.params)
    assert link.status_code == 201, link.text
    linked = await ops.until("other", state="input_required", waiting_for="outcome")
    assert "ledgerctl unlock" in linked["proposal"]
    unlinked = await http.delete("/v1/links", params=ops.params | {"relation": "same", "task": ["other", attempt_id]})
    assert unlinked.status_code == 200, unlinked.text
    alone = await ops.until("other", state="input_required", waiting_for="documents")
    assert alone.get("proposal") is None
