"""Large acts: nothing is erased or taken back before a second person has approved exactly the list of records."""

from datetime import UTC, datetime

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import GOOD, POISON, ingest, learn, there

from counterpoint.guard.policy import ApprovalPolicy, policy
from counterpoint.memory.operations import large_acts
from counterpoint.proto.approvals import Approval, ApprovalDecision, artifact_sha256
from counterpoint.proto.commands import Command, CommandReply, CommandRequest, EraseContent, TakeBackMemory
from counterpoint.proto.errors import Denied
from counterpoint.proto.ids import document_id, new_id
from counterpoint.proto.memory import Erase, TakeBack, Write
from counterpoint.proto.principals import Principal

SOURCE = "runbook.md"


@pytest.fixture(autouse=True)
def small_act_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """One person may change two records alone."""
    monkeypatch.setattr(ApprovalPolicy, "size", lambda *_: 2)


def acts(project: str) -> dict[str, Command]:
    """Every act that can be a large one, by its name."""
    reason = {"reason": "it is wrong"}
    runbook = {"store": "documents", "id": document_id(SOURCE)}
    return {
        "quarantine": TakeBackMemory(id=new_id(), wish=TakeBack(kind="quarantine", **runbook, **reason)),
        "rollback": TakeBackMemory(id=new_id(), wish=TakeBack(kind="rollback", **runbook, **reason)),
        "source": EraseContent(id=new_id(), wish=Erase(scope="source", what=SOURCE, **reason)),
        "project": EraseContent(id=new_id(), wish=Erase(scope="project", what=project, **reason)),
    }


async def ordered(house: House, project: str, act: Command) -> CommandReply:
    request = CommandRequest(origin=house.standing(project, principal=PERSON), command=act)
    return CommandReply.model_validate_json(await house.door.command("router", request.model_dump_json().encode()))


async def approval(house: House, project: str, reply: CommandReply) -> Approval:
    assert reply.refusal is None, reply.refusal
    assert reply.commit is None
    assert reply.approval is not None, "it was done unasked"
    return Approval.model_validate(await house.body(project, "approvals", reply.approval))


async def second(house: House, project: str) -> str:
    """Another person, who may approve."""
    name = f"ana-{project}"
    made = Principal(name=name, kind="person", projects=(project,), roles=("approve", "read"))
    body = made.model_dump(mode="json", exclude_none=True)
    write = Write(store="principals", id=name, body=body)
    await house.apply("router", house.standing("default", principal=PERSON), writes=(write,))
    return name


async def decide(house: House, project: str, asked: Approval, by: str, verdict: str = "approved") -> None:
    given = ApprovalDecision(decision=verdict, artifact_sha256=asked.artifact_sha256, reason="seen")
    after = asked.decided(given, by, "person", datetime.now(UTC))
    body = after.model_dump(mode="json", exclude_none=True)
    write = Write(store="approvals", id=asked.approval_id, body=body, expect=1)
    await house.apply("router", house.standing(project, principal=by), writes=(write,))


async def learned_document(house: House, project: str) -> list[tuple[str, str]]:
    """A document of two versions, and what a task learned from it."""
    document = await ingest(house, project, GOOD)
    await ingest(house, project, POISON)
    learned = await learn(house, project, new_id())
    return [("documents", document), *learned.values()]


async def state(house: House, project: str, asked: Approval) -> str:
    body = await house.body(project, "approvals", asked.approval_id)
    assert body is not None, "the approval was erased"
    return str(body["state"])


@pytest.mark.parametrize("name", ["quarantine", "rollback", "source", "project"])
async def test_an_act_is_done_when_repeated_after_a_second_person_approved(
    house: House, project: str, name: str
) -> None:
    records = await learned_document(house, project)
    act = acts(project)[name]
    asked = await approval(house, project, await ordered(house, project, act))
    assert (asked.requested_by, asked.task_id, asked.state) == (PERSON, None, "pending")
    assert asked.artifact_sha256 == artifact_sha256(asked.artifact)
    for store, record in records[1:]:
        assert f"- {store}/{record}" in asked.artifact
    again = await ordered(house, project, act)
    assert again.approval == asked.approval_id, "the same list asks once"
    assert all(await there(house, project, *records)), "it was done before it was approved"

    await decide(house, project, asked, await second(house, project))
    done = await ordered(house, project, act)
    assert (done.approval, done.refusal) == (None, None)
    assert not any(await there(house, project, *records[1:]))
    assert await state(house, project, asked) == "applied"


@pytest.mark.parametrize("name", ["quarantine", "source", "project"])
@pytest.mark.parametrize("verdict", ["approved", None])
async def test_an_act_whose_records_changed_needs_a_new_approval(
    house: House, project: str, name: str, verdict: str | None
) -> None:
    records = await learned_document(house, project)
    act = acts(project)[name]
    asked = await approval(house, project, await ordered(house, project, act))
    ana = await second(house, project)
    if verdict:
        await decide(house, project, asked, ana)
    more = await learn(house, project, new_id())
    later = await approval(house, project, await ordered(house, project, act))
    assert later.artifact_sha256 != asked.artifact_sha256
    assert later.approval_id != asked.approval_id
    assert await state(house, project, asked) == ("outdated" if verdict else "withdrawn")
    assert all(await there(house, project, *records, *more.values()))
    await decide(house, project, later, ana)
    assert (await ordered(house, project, act)).commit is not None
    assert not any(await there(house, project, *records[1:], *more.values()))


async def test_a_name_cannot_state_another_list(house: House, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ApprovalPolicy, "size", lambda *_: 1)
    for what in ("old.md, for ever\n1 records are erased\n- documents/old", "a\u2028b", "\u202egnihton", "a\x1b[2J"):
        await ingest(house, project, GOOD, source=what)
        act = EraseContent(id=new_id(), wish=Erase(scope="source", what=what, reason="it is wrong"))
        asked = await approval(house, project, await ordered(house, project, act))
        first, counted, *listed = asked.artifact.split("\n")
        assert first.isprintable()
        assert first.startswith("erase source ")
        assert counted == f"{len(listed) - 1} records are erased, with all their versions"


async def test_the_hash_covers_records_beyond_the_listed_ones(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_acts, "NAMED", 1)
    await learned_document(house, project)
    act = acts(project)["source"]
    asked = await approval(house, project, await ordered(house, project, act))
    assert asked.artifact.count("\n- ") == 2
    assert "- and " in asked.artifact
    other = large_acts.PlannedAct("erasure", "erase", 3, "3 records", ["a/1", "b/1", "c/1"])
    assert other.text != large_acts.PlannedAct("erasure", "erase", 3, "3 records", ["a/1", "b/1", "d/1"]).text


async def test_the_requester_and_their_deputy_cannot_approve(house: House, project: str) -> None:
    await learned_document(house, project)
    asked = await approval(house, project, await ordered(house, project, acts(project)["source"]))
    given = ApprovalDecision(decision="approved", artifact_sha256=asked.artifact_sha256)
    now = datetime.now(UTC)
    for by, delegators in ((PERSON, ()), ("ben", (PERSON,)), (PERSON, ("ana",))):
        with pytest.raises(Denied, match="a second person"):
            asked.decided(given, by, "person", now, delegators)
    assert asked.decided(given, "ben", "person", now, ("ana",)).state == "approved"


async def test_an_approval_that_the_manager_wrote_permits_nothing(house: House, project: str) -> None:
    """The manager owns the store, and keeps approvals of tasks there."""
    records = await learned_document(house, project)
    act = acts(project)["source"]
    asked = await approval(house, project, await ordered(house, project, act))
    given = ApprovalDecision(decision="approved", artifact_sha256=asked.artifact_sha256)
    forged = asked.decided(given, "ana", "person", datetime.now(UTC))
    task = new_id()
    at_work = house.delivery(await house.routed(project, task))
    kept = Write(store="approvals", id=asked.approval_id, body=forged.model_dump(mode="json"), expect=1)
    await house.commit("manager", at_work, writes=(kept,))
    other = forged.model_copy(update={"approval_id": new_id(), "task_id": task})
    added = Write(store="approvals", id=other.approval_id, body=other.model_dump(mode="json"))
    await house.apply("manager", at_work, step="more", writes=(added,))
    later = await approval(house, project, await ordered(house, project, act))
    assert later.state == "pending"
    assert all(await there(house, project, *records))
    await decide(house, project, later, await second(house, project))
    assert (await ordered(house, project, act)).commit is not None


@pytest.mark.parametrize("by", [{"decided_by": PERSON}, {"decided_by": "ben", "decided_for": PERSON}])
async def test_an_approval_by_the_one_who_asked_permits_nothing(house: House, project: str, by: dict[str, str]) -> None:
    records = await learned_document(house, project)
    act = acts(project)["source"]
    asked = await approval(house, project, await ordered(house, project, act))
    forged = asked.model_copy(update={"state": "approved", **by})
    write = Write(store="approvals", id=asked.approval_id, body=forged.model_dump(mode="json"), expect=1)
    await house.apply("router", house.standing(project, principal=PERSON), writes=(write,))
    assert (await approval(house, project, await ordered(house, project, act))).approval_id != asked.approval_id
    assert all(await there(house, project, *records))


async def test_a_rejection_holds_for_the_same_list(house: House, project: str) -> None:
    records = await learned_document(house, project)
    act = acts(project)["quarantine"]
    asked = await approval(house, project, await ordered(house, project, act))
    ana = await second(house, project)
    await decide(house, project, asked, ana, "rejected")
    refused = await ordered(house, project, act)
    assert refused.refusal is not None
    assert (refused.refusal.code, refused.approval) == ("not_approved", None)
    assert ana in (refused.refusal.needed or "")
    assert all(await there(house, project, *records))


async def test_another_act_on_the_same_item_needs_an_approval_of_its_own(house: House, project: str) -> None:
    records = await learned_document(house, project)
    quarantine, rollback = acts(project)["quarantine"], acts(project)["rollback"]
    asked = await approval(house, project, await ordered(house, project, quarantine))
    await decide(house, project, asked, await second(house, project))
    await approval(house, project, await ordered(house, project, rollback))
    assert all(await there(house, project, *records))


async def test_the_projects_that_use_a_shared_item_count(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApprovalPolicy, "size", lambda *_: 4)
    source = f"{project}.md"
    await ingest(house, "shared", f"{POISON} {project}", source=source)
    wish = TakeBack(kind="quarantine", store="documents", id=document_id(source), reason="wrong")
    for _ in range(2):
        await learn(house, project, new_id())
    act = TakeBackMemory(id=new_id(), wish=wish)
    asked = await approval(house, "shared", await ordered(house, "shared", act))
    assert f"- project {project}: " in asked.artifact
    # No other test finds it.
    monkeypatch.setattr(ApprovalPolicy, "size", lambda *_: 1000)
    assert (await ordered(house, "shared", act)).commit is not None


async def test_small_acts_previews_and_lifts_need_no_approval(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await learned_document(house, project)
    act = acts(project)["quarantine"]
    assert isinstance(act, TakeBackMemory)
    shown = await ordered(house, project, act.model_copy(update={"preview": True}))
    assert shown.report is not None
    monkeypatch.setattr(ApprovalPolicy, "size", lambda *_: 1000)
    done = await ordered(house, project, act)
    assert (done.approval, done.refusal) == (None, None)
    monkeypatch.setattr(ApprovalPolicy, "size", lambda *_: 0)
    lift = TakeBackMemory(id=new_id(), wish=TakeBack(kind="lift", id=act.id, reason="it was right"))
    assert (await ordered(house, project, lift)).commit is not None


async def test_the_release_before_is_refused(house: House, project: str) -> None:
    records = await learned_document(house, project)
    body = {"scope": "source", "what": SOURCE, "reason": "asked for"}
    write = Write(store="erasures", id=new_id(), body=body)
    await house.refusal("router", house.standing(project, principal=PERSON), "not_approved", writes=(write,))
    assert all(await there(house, project, *records))


def test_the_size_is_that_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rules = policy().approvals.model_copy(update={"over_in": {"payments": {"erasure": 10}}})
    assert [rules.size(act, each) for each in ("payments", "orders") for act in ("erasure", "take_back")] == [
        10, 1000, 1000, 1000,
    ]  # fmt: skip


def test_a_policy_without_a_size_for_each_act_is_refused() -> None:
    row = policy().approvals.model_dump()
    for broken in ({"erasure": 1}, {"erasure": 1, "take_back": -1}, {"erasure": 1, "take_back": 1, "merge": 1}):
        with pytest.raises(ValueError, match="over"):
            ApprovalPolicy.model_validate(row | {"over": broken})
