"""Records that are handed in whole: the same again is unchanged, another word replaces, what is refused is named."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from memory_service.house import House

from counterpoint.memory.ingest import bulk_import
from counterpoint.memory.ingest.bulk_import import incident_id
from counterpoint.proto.errors import Conflict, Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.incidents import PastIncident
from counterpoint.proto.ingest import IngestReply, IngestRequest, RecordResult
from counterpoint.proto.memory import CommitReply, Origin, Write
from counterpoint.proto.providers import Provider
from counterpoint.proto.signature import signature

ERROR = "OperationalError: could not connect to server db-{}.internal:5432: Connection refused"
SECRET = "postgresql://loader:Xk29-vvQ81zz@db.internal/orders"


def incident(**fields: Any) -> PastIncident:
    """A row of the one file of these tests."""
    given = {
        "source": "incidents.csv",
        "error_message": ERROR.format(1),
        "tried": "Raised the limit of connections of the pool.",
        "outcome": "succeeded",
        "when": datetime(2026, 3, 4, 10, tzinfo=UTC),
        "by": "ada",
    }
    return PastIncident.model_validate(given | fields)


async def reply(house: House, origin: Origin, *incidents: PastIncident, providers: Any = ()) -> IngestReply:
    """Return the reply of memory."""
    request = IngestRequest(origin=origin, incidents=incidents, providers=providers)
    return IngestReply.model_validate_json(await house.door.ingest("router", request.model_dump_json().encode()))


async def recorded(house: House, project: str, *incidents: PastIncident) -> tuple[RecordResult, ...]:
    """Hand in incidents as an administrator, and return the result of each."""
    answer = await reply(house, house.standing(project, principal="administrator"), *incidents)
    assert answer.refusal is None, answer.refusal
    return answer.incidents


async def somebody(house: House, project: str, kind: str, role: str) -> str:
    """A principal of one role in the project."""
    name = f"somebody-{new_id()}"
    body = {"name": name, "kind": kind, "projects": [project], "roles": [role]}
    write = Write(store="principals", id=name, body=body)
    await house.apply("router", house.standing("default", principal="administrator"), writes=(write,))
    return name


async def stored_records(house: House, project: str, store: str = "attempts") -> dict[str, dict[str, Any]]:
    """The records of a store by id, each with what it is stamped with."""
    async with house.superuser() as connection:
        rows = await connection.fetch(
            "SELECT id, version, body::text AS body, author, integrity FROM records"
            " WHERE project = $1 AND store = $2 AND body IS NOT NULL",
            project,
            store,
        )
    return {row["id"]: dict(row) | {"body": json.loads(row["body"])} for row in rows}


class TestAnIncident:
    async def test_becomes_an_attempt_that_was_reported_with_the_signature_of_its_error(
        self, house: House, project: str
    ) -> None:
        (became,) = await recorded(house, project, incident(note="It was the pool.", systems=("postgres",)))
        assert became.status == "added"
        row = (await stored_records(house, project))[became.id]
        body = row["body"]
        assert (row["author"], row["integrity"]) == ("memory", 2)
        assert body["error_signature"] == signature(ERROR.format(2)).digest
        assert (body["evidence"], body["outcome"], body["by"]) == ("reported", "succeeded", "ada")
        assert (body["at"], body["decided_at"]) == ("2026-03-04T10:00:00Z", "2026-03-04T10:00:00Z")
        assert body["description"] == ERROR.format(1)
        assert body["source"] == "incidents.csv"

    async def test_again_is_unchanged_and_with_another_outcome_replaced(self, house: House, project: str) -> None:
        (first,) = await recorded(house, project, incident())
        (again,) = await recorded(house, project, incident())
        (changed,) = await recorded(house, project, incident(outcome="failed"))
        assert (first.status, again.status, changed.status) == ("added", "unchanged", "replaced")
        assert first.id == again.id == changed.id
        rows = await stored_records(house, project)
        assert [(row["version"], row["body"]["outcome"]) for row in rows.values()] == [(2, "failed")]

    async def test_with_an_id_is_known_by_it_alone(self, house: House, project: str) -> None:
        await recorded(house, project, incident(id="INC-7"))
        (changed,) = await recorded(house, project, incident(id="INC-7", tried="Restarted the pool."))
        assert changed.status == "replaced"
        assert len(await stored_records(house, project)) == 1

    async def test_that_contradicts_one_before_it_is_refused_and_a_repeat_is_one(
        self, house: House, project: str
    ) -> None:
        became = await recorded(house, project, incident(), incident(), incident(outcome="failed"))
        assert [one.status for one in became] == ["added", "unchanged", "refused"]
        assert "contradicts an earlier row" in (became[2].problem or "")
        assert [row["body"]["outcome"] for row in (await stored_records(house, project)).values()] == ["succeeded"]

    async def test_with_a_secret_is_refused_and_the_others_are_kept(self, house: House, project: str) -> None:
        became = await recorded(
            house, project, incident(), incident(tried=f"Set the connection to {SECRET}"), incident(id="3")
        )
        assert [one.status for one in became] == ["added", "refused", "added"]
        assert "tried contains what looks like" in (became[1].problem or "")
        assert "Xk29" not in str(became)
        assert len(await stored_records(house, project)) == 2

    async def test_a_redacted_incident_is_unchanged_when_it_comes_again(self, house: House, project: str) -> None:
        mail = incident(by="ada.lovelace@engines.test", note="Ask ada.lovelace@engines.test about it.")
        (first,) = await recorded(house, project, mail)
        (again,) = await recorded(house, project, mail)
        assert (first.status, again.status) == ("added", "unchanged")
        assert "lovelace" not in str(await stored_records(house, project))

    async def test_is_trusted_as_far_as_who_hands_it_in(self, house: House, project: str) -> None:
        name = await somebody(house, project, "agent", "ingest")
        answer = await reply(house, house.standing(project, principal=name), incident())
        assert answer.refusal is None, answer.refusal
        assert [row["integrity"] for row in (await stored_records(house, project)).values()] == [1]

    async def test_without_the_role_is_refused(self, house: House, project: str) -> None:
        name = await somebody(house, project, "person", "read")
        answer = await reply(house, house.standing(project, principal=name), incident())
        assert answer.refusal is not None
        assert answer.refusal.code == "role"
        assert await stored_records(house, project) == {}

    async def test_of_a_step_that_failed_is_written_when_it_comes_again(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bulk_import, "STEP_WRITES", 2)
        rows = [incident(id=str(number)) for number in range(5)]
        real, steps = house.committer.apply, 0

        async def once(step: Any) -> CommitReply:
            nonlocal steps
            steps += 1
            if steps == 2:
                raise Transient("the process ended")
            return await real(step)

        monkeypatch.setattr(house.committer, "apply", once)
        answer = await reply(house, house.standing(project, principal="administrator"), *rows)
        assert answer.refusal is not None
        assert len(await stored_records(house, project)) == 2
        became = await recorded(house, project, *rows)
        assert [one.status for one in became] == ["unchanged"] * 2 + ["added"] * 3

    async def test_with_a_conflict_is_read_and_written_again(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, steps = house.committer.apply, 0

        async def overtaken(step: Any) -> CommitReply:
            nonlocal steps
            steps += 1
            if steps == 1:
                raise Conflict("attempts", incident_id(incident()), 0, 1)
            return await real(step)

        monkeypatch.setattr(house.committer, "apply", overtaken)
        assert [one.status for one in await recorded(house, project, incident())] == ["added"]


class TestAProvider:
    async def test_has_one_row_in_a_project(self, house: House, project: str) -> None:
        origin = house.standing(project, principal="administrator")
        row = Provider(
            name="Ledgerland", package="airflow-provider-ledgerland", hooks=("LedgerHook",), package_version="1.0.0"
        )
        first = await reply(house, origin, providers=(row,))
        again = await reply(house, house.standing(project, principal="administrator"), providers=(row,))
        newer = row.model_copy(update={"package_version": "1.1.0"})
        changed = await reply(house, house.standing(project, principal="administrator"), providers=(newer,))
        assert [one.providers[0].status for one in (first, again, changed)] == ["added", "unchanged", "replaced"]
        (kept_row,) = (await stored_records(house, project, "providers")).values()
        assert kept_row["body"]["package_version"] == "1.1.0"

    @pytest.mark.parametrize("field", ["operators", "sensors", "hooks"])
    async def test_with_a_secret_in_a_name_is_refused_and_the_others_are_kept(
        self, house: House, project: str, field: str
    ) -> None:
        key = "AKIA" + "Z7QF3MPLKD2WXYTB"
        wrong = Provider.model_validate({"name": "Ledgerland", "package": "airflow-provider-ledgerland", field: [key]})
        other = Provider(name="Tallyland", package="airflow-provider-tallyland")
        origin = house.standing(project, principal="administrator")
        refused, added = (await reply(house, origin, providers=(wrong, other))).providers
        assert (refused.status, refused.problem) == ("refused", f"{field} contains what looks like a secret")
        assert added.status == "added"
        assert key not in json.dumps(await stored_records(house, project, "providers"))

    async def test_is_not_known_by_a_secret(self, house: House, project: str) -> None:
        package = "sk-" + "a8fk2kd93kfls03kdlq0w7vb"
        origin = house.standing(project, principal="administrator")
        (refused,) = (await reply(house, origin, providers=(Provider(name="Ledgerland", package=package),))).providers
        assert (refused.status, refused.problem) == ("refused", "its id contains what looks like a secret")
        assert package not in refused.id
