"""A rollback restores the version before, and a take-back with a lost reply is done once."""

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import GOOD, POISON, ingest, learn, there, wish

from counterpoint.memory.operations import take_back
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.proto.errors import Away
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import CommitReply, Get, VectorSearch, Write


class TestARollback:
    @pytest.mark.parametrize("restarted", [False, True])
    async def test_of_a_quarantined_document_makes_it_usable_again(
        self, house: House, project: str, restarted: bool
    ) -> None:
        document = await ingest(house, project, GOOD)
        await ingest(house, project, POISON)
        await learn(house, project, new_id())
        await wish(house, project, "quarantine", store="documents", id=document)
        await wish(house, project, "rollback", store="documents", id=document)
        if restarted:
            house.restart()
            await house.remember()
        after = await learn(house, project, new_id())
        assert all(await there(house, project, *after.values(), ("documents", document)))

    async def test_restores_the_previous_version(self, house: House, project: str) -> None:
        document = await ingest(house, project, GOOD)
        good = await learn(house, project, new_id())
        await ingest(house, project, POISON)
        bad = await learn(house, project, new_id())
        await wish(house, project, "rollback", store="documents", id=document, version=2)
        chunk = await house.body(project, "chunks", f"{document}-00000")
        assert chunk is not None
        assert chunk["text"] == GOOD
        assert not any(await there(house, project, *bad.values()))
        assert all(await there(house, project, *good.values()))
        search = VectorSearch(store="chunks", text="restart the worker")
        found = await house.answer("router", house.standing(project, principal=PERSON), search)
        assert [each.body["text"] for each in found.items] == [GOOD]
        assert (await house.verify(project))["ok"]

    async def test_without_a_version_is_of_the_current_text(self, house: House, project: str) -> None:
        document = await ingest(house, project, GOOD)
        await ingest(house, project, POISON)
        wish_id = await wish(house, project, "quarantine", store="documents", id=document)
        await wish(house, project, "lift", id=wish_id)
        await wish(house, project, "rollback", store="documents", id=document)
        chunk = await house.body(project, "chunks", f"{document}-00000")
        assert chunk is not None
        assert chunk["text"] == GOOD

    async def test_after_a_quarantine_restores_the_good_version(self, house: House, project: str) -> None:
        document = await ingest(house, project, GOOD)
        await ingest(house, project, POISON)
        bad = await learn(house, project, new_id())
        await wish(house, project, "quarantine", store="documents", id=document, version=2)
        assert not any(await there(house, project, ("documents", document)))
        await wish(house, project, "rollback", store="documents", id=document, version=2)
        chunk = await house.body(project, "chunks", f"{document}-00000")
        assert chunk is not None
        assert chunk["text"] == GOOD
        assert not any(await there(house, project, *bad.values()))

    async def test_keeps_label_and_integrity(self, house: House, project: str) -> None:
        document = await ingest(house, project, GOOD)
        await ingest(house, project, POISON)
        origin = house.standing(project, principal=PERSON)
        (before,) = (await house.answer("router", origin, Get(store="documents", id=document))).items
        await wish(house, project, "rollback", store="documents", id=document, version=2)
        (after,) = (await house.answer("router", origin, Get(store="documents", id=document))).items
        assert (after.version, after.label, after.integrity, after.author) == (
            3,
            before.label,
            before.integrity,
            "memory",
        )
        assert after.body["sha256"] != before.body["sha256"]


class TestLostReply:
    """The commit of a wish whose answer is lost may have been applied, or not."""

    @staticmethod
    async def lost(
        house: House, project: str, document: str, monkeypatch: pytest.MonkeyPatch, *, applied: bool
    ) -> None:
        apply = house.committer.apply

        async def away(step: CommitPlan) -> CommitReply:
            if any(row.store == "quarantines" for row in step.writes):
                if applied:
                    await apply(step)
                raise Away("the database is away")
            return await apply(step)

        body = {"kind": "quarantine", "reason": "it is wrong", "store": "documents", "id": document}
        with monkeypatch.context() as patch:
            patch.setattr(house.committer, "apply", away)
            write = Write(store="quarantines", id=new_id(), body=body)
            reply = await house.commit("router", house.standing(project, principal=PERSON), writes=(write,))
        assert reply.refusal is not None
        assert reply.refusal.kind == "transient"

    @pytest.mark.parametrize("applied", [True, False])
    async def test_commits_that_read_it_are_refused_until_its_result_is_known(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch, applied: bool
    ) -> None:
        document = await ingest(house, project, POISON)
        origin = house.delivery(await house.delegated(project, new_id()))
        await house.answer("developer", origin, VectorSearch(store="chunks", text="repair the orders pipeline", k=3))
        await self.lost(house, project, document, monkeypatch, applied=applied)

        async def rests() -> str:
            return (await house.commit("developer", origin, reads=1, step=new_id(), last=False)).status

        assert await rests() == "refused"
        await house.takebacks.settle()
        assert await rests() == "refused"
        monkeypatch.setattr(take_back, "_UNCONFIRMED_S", 0.0)
        await house.takebacks.settle()
        assert await rests() == ("refused" if applied else "done")
        assert await there(house, project, ("documents", document)) == [not applied]
        if not applied:
            await wish(house, project, "quarantine", store="documents", id=document)
            assert await rests() == "refused"
