"""Sensitive values in requests to memory: redacted before they are kept or sent, refused, or released by persons."""

import json
import re
from typing import Any

import pytest
from access.sensitive_values import ADDRESS, CARD, GENERIC, KEY, MAIL, fingerprint_of, release, released_by, tables_with
from memory_service.house import ROUTED, House, decision, task_body
from memory_service.leaves import leaf_bodies
from structlog.testing import capture_logs

from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import DeadLetter, Outgoing, Write
from counterpoint.proto.principals import Principal, PrincipalKind

PROPOSED = "counterpoint.task.proposed.v1"


async def principal(house: House, kind: PrincipalKind, *roles: Any) -> str:
    name = f"{kind}-{new_id()}"
    asker = Principal(name=name, kind=kind, projects=("*",), roles=roles)
    write = Write(store="principals", id=new_id(), body=asker.model_dump(mode="json", exclude_none=True))
    await house.apply("router", released_by(house, "default"), writes=(write,))
    return name


class TestRedaction:
    async def test_a_redacted_value_is_in_no_record_message_log_or_leaf(self, house: House, project: str) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        text = f"{CARD} was declined for {MAIL} at {ADDRESS}"
        attempt = {"attempt_id": "a-1", "task_id": "t-1", "description": text, "tried": text}
        with capture_logs() as logs:
            done = await house.apply(
                "manager",
                manager,
                writes=(
                    Write(store="tasks", id="t-1", body=task_body("t-1", description=text, context={text: [text]})),
                    Write(store="attempts", id="a-1", body=attempt),
                ),
                messages=(
                    Outgoing(type=PROPOSED, data={"task_id": "t-1", "proposal": text}),
                    decision(agent="manager", decision=text, reasoning=text),
                ),
            )
        sent = "".join(house.sent[message_id].row.body for message_id in done.message_ids)
        for value in (CARD, MAIL):
            assert await tables_with(house, project, value) == set()
            assert value not in sent + repr(logs)
        assert "[redacted:card] was declined for [redacted:email] at 10.1.2.3" in sent
        assert {"records", "messages"} <= await tables_with(house, project, ADDRESS)
        async with house.superuser() as connection:
            bodies = map(json.loads, await leaf_bodies(connection, "project = $1", project))
        (redacted,) = (body["redacted"] for body in bodies if "redacted" in body)
        assert ["tasks/t-1", "description", "card"] in redacted

    async def test_a_task_keeps_an_id_that_looks_like_a_secret(self, house: House, project: str) -> None:
        looks_like_an_account = "01a20276-b2ef-7d2e-be56-8ebfd6363fcc"
        data = {"task_id": looks_like_an_account, "task": {"task_id": looks_like_an_account}}
        origin = house.standing(project, looks_like_an_account)
        done = await house.apply("router", origin, messages=(Outgoing(type=ROUTED, data=data),))
        assert json.loads(house.sent[done.message_ids[0]].row.body) == data
        card = CARD.replace(" ", "")
        refused = await house.refusal(
            "router",
            house.standing(project, card),
            "sensitive",
            messages=(Outgoing(type=ROUTED, data={"task_id": card, "task": {"task_id": card}}),),
        )
        assert [problem.field for problem in refused.problems] == ["task.task_id", "task_id"]

    async def test_a_redacted_commit_can_be_replayed(self, house: House, project: str) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        write = Write(store="tasks", id="t-1", body=task_body("t-1", description=f"card {CARD}"))
        first = await house.apply("manager", manager, writes=(write,))
        again = await house.commit("manager", manager, writes=(write,))
        assert (again.status, again.versions) == ("replayed", first.versions)
        assert (await house.body(project, "tasks", "t-1") or {})["description"] == "card [redacted:card]"

    async def test_a_redacted_text_is_stored_unchanged(self, house: House, project: str) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        body = task_body("t-1", description="pay [redacted:card] to [redacted:email]")
        await house.apply("manager", manager, writes=(Write(store="tasks", id="t-1", body=body),))
        assert (await house.body(project, "tasks", "t-1") or {})["description"] == body["description"]

    async def test_a_dead_letter_is_redacted_but_quarantined_values_stay(self, house: House, project: str) -> None:
        reported = house.delivery(await house.reported(project, "t-1"))
        body = json.dumps({"note": f"{CARD} {KEY}"})
        letter = DeadLetter(code="sensitive", subject=f"intake.{project}.outcome", body=body, headers={})
        await house.apply("manager", reported, step="dead", dead_letter=letter)
        held = DeadLetter(code="sensitive", subject=f"intake.{project}.outcome", body=GENERIC, headers={})
        other = house.delivery(await house.reported(project, "t-2"))
        await house.apply("manager", other, step="dead", dead_letter=held)
        assert await tables_with(house, project, CARD) == await tables_with(house, project, KEY) == set()
        assert await tables_with(house, project, GENERIC.split('"')[1]) == {"records"}


class TestReleases:
    async def test_a_person_lets_one_value_pass_in_one_project_until_it_is_revoked(
        self, house: House, project: str
    ) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        write = Write(store="tasks", id="t-1", body=task_body("t-1", description=GENERIC))
        refused = await house.refusal("manager", manager, "sensitive", writes=(write,))
        assert "k8Vqz3" not in refused.model_dump_json()
        made = release(fingerprint_of(refused))
        await house.apply("router", released_by(house, project), writes=(made,))
        await house.apply("manager", manager, writes=(write,))
        assert (await house.body(project, "tasks", "t-1") or {})["description"] == GENERIC

        another = task_body("t-1", description=GENERIC.replace("k8V", "z8V"))
        later = house.delivery(await house.reported(project, "t-1"))
        changed = Write(store="tasks", id="t-1", body=another, expect=1)
        await house.refusal("manager", later, "sensitive", writes=(changed,))
        elsewhere = house.delivery(await house.routed(f"{project}-b", "t-1"))
        await house.refusal("manager", elsewhere, "sensitive", writes=(write,))

        gone = Write(store="releases", id=made.id, body=None, expect=1)
        await house.apply("router", released_by(house, project), writes=(gone,))
        same = Write(store="tasks", id="t-1", body=write.body, expect=1)
        await house.refusal("manager", later, "sensitive", writes=(same,))

    async def test_releases_survive_a_restart(self, house: House, project: str) -> None:
        write = Write(store="tasks", id="t-1", body=task_body("t-1", description=f"{GENERIC} {KEY}"))
        manager = house.delivery(await house.routed(project, "t-1"))
        refused = await house.refusal("manager", manager, "sensitive", writes=(write,))
        prints = re.findall(r"fingerprint ([0-9a-f]{16})", refused.model_dump_json())
        assert len(set(prints)) == 2
        for each in set(prints):
            await house.apply("router", released_by(house, project), writes=(release(each),))
        house.restart()
        await house.apply("manager", manager, writes=(write,))

    async def test_a_release_needs_a_person_with_the_role_operate(self, house: House, project: str) -> None:
        operator = await principal(house, "person", "operate")
        await house.apply("router", released_by(house, project, operator), writes=(release("0" * 16),))
        machine = await principal(house, "system", "operate", "admin", "ingest")
        reader = await principal(house, "person", "read", "admin")
        for who in (machine, reader):
            origin = released_by(house, project, who)
            await house.refusal("router", origin, "store", writes=(release("1" * 16),))
        await house.refusal("router", house.standing(project), "store", writes=(release("2" * 16),))
        handed = house.delivery(await house.reported(project, "t-1"))
        await house.refusal("manager", handed, "store", writes=(release("3" * 16),))


@pytest.mark.parametrize("value", [CARD, MAIL, KEY, GENERIC])
async def test_a_refusal_names_every_value_once_at_its_first_place(house: House, project: str, value: str) -> None:
    manager = house.delivery(await house.routed(project, "t-1"))
    body = task_body("t-1", description=f"{KEY} {value}", reason=f"{value} {KEY}")
    refused = await house.refusal("manager", manager, "sensitive", writes=(Write(store="tasks", id="t-1", body=body),))
    assert [problem.field for problem in refused.problems] == ["description"] * (1 + (value == GENERIC))
