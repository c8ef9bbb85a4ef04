"""Exported checkpoints prove the log: every later change of the database is found by them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from audit.audit_log import PROJECT, Log, a_log
from memory_service.house import AUDIT_KEY, PERSON

from counterpoint.local.postgres import PostgresUrls
from counterpoint.memory.audit.export import CheckpointFile
from counterpoint.memory.audit.note import NoteKey
from counterpoint.memory.audit.sequencer import EVERY_LEAVES
from counterpoint.proto.errors import Away
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import AuditLeaves, Checkpoints, Prove, Write

LAST = "(SELECT max(position) FROM audit)"
RENAMED = (
    'UPDATE audit SET body = regexp_replace(body, \'"at":"20\', \'"at":"19\')'
    " WHERE project = 'orders' AND task_id = 't-1'"
)


@pytest.fixture
async def log(server: PostgresUrls, tmp_path: Path) -> AsyncIterator[Log]:
    """Nine leaves with a checkpoint."""
    async with a_log(server, tmp_path) as log:
        await log.story("t-1")
        await log.as_text()
        await log.sign()
        yield log


async def edit(log: Log) -> None:
    await log.run(RENAMED)


async def delete(log: Log) -> None:
    await log.run("DELETE FROM audit WHERE position = 3")


async def swap(log: Log) -> None:
    await log.run(
        "UPDATE audit SET position = -1 WHERE position = 2",
        "UPDATE audit SET position = 2 WHERE position = 4",
        "UPDATE audit SET position = 4 WHERE position = -1",
    )


async def swap_and_rehash(log: Log) -> None:
    await swap(log)
    await log.rehash()


async def truncate(log: Log) -> None:
    """The end of the log is cut off, with all that says that it was there: records and messages too."""
    last = f"(SELECT id FROM audit WHERE position = {LAST})"
    await log.run(
        f"DELETE FROM inbox WHERE message_id = (SELECT body::jsonb ->> 'message' FROM audit WHERE position = {LAST})",
        f"DELETE FROM messages WHERE commit_id = {last}",
        f"DELETE FROM read_sets WHERE commit_id = {last}",
        f"DELETE FROM records WHERE commit_id IN (SELECT id FROM audit WHERE position = {LAST})",
        f"DELETE FROM audit WHERE position = {LAST}",
        "UPDATE audit_head SET position = position - 1",
        "DELETE FROM audit_checkpoints",
    )


async def rewrite(log: Log) -> None:
    await log.run(RENAMED)
    await log.rehash()


async def roll_back(log: Log) -> None:
    """An older backup takes the place of the record."""
    await log.back_up()
    await log.story("t-2")
    await log.sign()
    await log.restore()


async def fork(log: Log) -> None:
    """The same, and the log then goes on to be longer than it was."""
    await roll_back(log)
    for task in ("t-3", "t-4"):
        await log.story(task)


ENEMIES = (edit, delete, swap, swap_and_rehash, truncate, rewrite, roll_back, fork)


class TestTampering:
    @pytest.mark.parametrize("enemy", ENEMIES)
    async def test_tampering_is_found_by_the_exported_checkpoints(self, log: Log, enemy: object) -> None:
        """By the running process, and by one that starts afterwards."""
        assert (await log.verify())["broken"] == []
        await enemy(log)  # type: ignore[operator]
        for report in (await log.verify(), await self._restarted(log)):
            assert not report["ok"]
            assert report["broken"]

    async def _restarted(self, log: Log) -> dict[str, Any]:
        log.house.restart()
        return await log.verify()

    @pytest.mark.parametrize("enemy", [rewrite, truncate, swap_and_rehash])
    async def test_tampering_is_not_found_without_the_export(self, log: Log, enemy: object) -> None:
        """Without the export the same attack is not found."""
        await enemy(log)  # type: ignore[operator]
        log.file.path.unlink()
        log.house.restart()
        assert (await log.verify())["ok"]

    @pytest.mark.parametrize("enemy", [truncate, rewrite, roll_back, fork, delete])
    async def test_a_damaged_log_is_not_signed_any_more(self, log: Log, enemy: object) -> None:
        await enemy(log)  # type: ignore[operator]
        log.house.restart()
        before = await log.signed()
        await log.story("t-5")
        await log.sign()
        assert log.house.sequencer.fault
        assert await log.signed() == before
        assert log.house.sequencer.fault in (await log.verify())["broken"]

    async def test_a_record_that_goes_back_under_a_running_memory_is_noticed(self, log: Log) -> None:
        await roll_back(log)
        await log.sign()
        assert "covers" in str(log.house.sequencer.fault)

    async def test_a_restored_log_is_signed_again(self, log: Log) -> None:
        await log.back_up()
        await truncate(log)
        await log.sign()
        assert log.house.sequencer.fault
        await log.restore()
        await log.story("t-2")
        await log.sign()
        assert log.house.sequencer.fault is None
        report = await log.verify()
        assert (report["broken"], report["checkpoint"]["size"]) == ([], report["head"]["position"])

    async def test_the_tree_as_it_is_kept_is_compared_too(self, log: Log) -> None:
        await log.run(
            "INSERT INTO audit (project, id, kind, body, salt) SELECT 'orders', gen_random_uuid(), 'refusal', "
            '\'{"refused": "x", "rule": "r", "task": null}\', \'\\x01\' FROM generate_series(1, 600)'
        )
        assert (await log.verify())["broken"] == []
        await log.run(f"{TURN_A_BYTE} WHERE number = 1")
        assert (await log.verify())["broken"] == ["the stored tree differs at leaf 258"]


TURN_A_BYTE = "UPDATE audit_tiles SET hashes = set_byte(hashes, 32, get_byte(hashes, 32) # 255)"
MANY = """
INSERT INTO audit (project, id, kind, body, salt)
SELECT 'orders', gen_random_uuid(), 'refusal', '{"refused": "x", "rule": "r", "task": null}', '\\x01'
FROM generate_series(1, 600)
"""


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("changed", [TURN_A_BYTE, "DELETE FROM audit_tiles"])
async def test_a_tree_that_was_changed_where_it_is_kept_is_never_signed(
    log: Log, changed: str, restarted: bool
) -> None:
    await log.run(MANY)
    await log.sign()
    await log.run(f"{changed} WHERE number = 0")
    if restarted:
        log.house.restart()
    await log.run(MANY)
    await log.sign()
    broken = (await log.verify())["broken"]
    assert not [fault for fault in broken if fault.startswith("the first")]
    if restarted:
        assert log.house.sequencer.fault
        assert [each.size for each in await log.signed()] == [7, 607]


class TestExport:
    async def test_a_checkpoint_is_a_signed_note(self, log: Log) -> None:
        (checkpoint,) = await log.signed()
        origin, size, root, blank, signature = checkpoint.note.splitlines()
        assert (origin, int(size), blank) == (AUDIT_KEY.origin, checkpoint.size, "")
        assert signature.startswith(f"\u2014 {origin} ")
        assert AUDIT_KEY.public.startswith(f"{origin}+")
        assert len(root) == 44
        report = await log.house.report(PROJECT, Checkpoints())
        assert [each["note"] for each in report["items"]] == [checkpoint.note]

    async def test_a_file_that_cannot_be_read_is_waited_for(self, tmp_path: Path) -> None:
        """A fault of the disk is no reason for memory to end: it signs nothing until it knows what it has given out."""
        (tmp_path / "checkpoints").mkdir()
        with pytest.raises(Away, match="cannot be read"):
            await CheckpointFile(tmp_path).read()

    async def test_an_unchanged_log_is_signed_once(self, log: Log) -> None:
        await log.sign()
        await log.sign()
        assert len(await log.signed()) == 1

    async def test_every_thousand_leaves_are_signed(self, log: Log) -> None:
        more = (
            "INSERT INTO audit (project, id, kind, body, salt) SELECT 'orders', gen_random_uuid(), 'refusal', '{}', "
            f"'\\x01' FROM generate_series(1, {EVERY_LEAVES - 1})"
        )
        await log.run(more)
        await log.house.sequencer.once()
        assert len(await log.signed()) == 1
        await log.run(more)
        await log.house.sequencer.once()
        assert len(await log.signed()) == 2

    async def test_a_clean_stop_signs(self, log: Log) -> None:
        await log.story("t-2")
        await log.house.sequencer.close()
        assert (await log.signed())[-1].size == (await log.verify())["head"]["position"]

    @pytest.mark.parametrize("left", [1, 30, 60, 130], ids=lambda left: f"{left} bytes")
    async def test_a_note_that_a_crash_cut_off_is_written_again(self, log: Log, left: int) -> None:
        whole = log.file.path.read_bytes()
        log.file.path.write_bytes(whole[:left])
        log.house.restart()
        assert (await log.verify())["ok"]
        assert [each.note for each in await log.signed()] == [whole.decode()]
        await log.story("t-2")
        await log.sign()
        assert len(await log.signed()) == 2
        assert (await log.verify())["ok"]

    async def test_a_file_that_lost_its_end_gets_it_back(self, log: Log) -> None:
        first = log.file.path.read_bytes()
        await log.story("t-2")
        await log.sign()
        whole = await log.signed()
        log.file.path.write_bytes(first)
        log.house.restart()
        await log.sign()
        assert await log.signed() == whole

    async def test_a_forged_note_is_reported(self, log: Log) -> None:
        forged = log.file.path.read_text().replace(f"\n{(await log.signed())[0].size}\n", "\n1\n")
        log.file.path.write_text(log.file.path.read_text() + forged)
        report = await log.verify()
        assert report["broken"] == ["the file has 1 checkpoints with an invalid signature"]

    async def test_notes_of_another_key_count_for_nothing(self, log: Log) -> None:
        other = NoteKey("11" * 32).signed(10_000, bytes(32))
        log.file.path.write_text(log.file.path.read_text() + other.note)
        assert (await log.verify())["ok"]

    async def test_a_copy_of_the_checkpoints_is_compared(self, log: Log) -> None:
        kept = log.file.path.read_text()
        assert (await log.verify(checkpoints=kept))["ok"]
        await rewrite(log)
        log.file.path.unlink()
        log.house.restart()
        assert (await log.verify())["ok"]
        report = await log.verify(checkpoints=kept)
        size = report["checkpoint"]["size"]
        assert report["broken"] == [f"the first {size} leaves differ from a checkpoint of the caller"]

    async def test_the_window_starts_at_the_last_checkpoint(self, log: Log) -> None:
        before = (await log.verify())["window"]
        assert before["from"] == before["to"]
        await log.story("t-2")
        window = (await log.verify())["window"]
        assert (window["from"], window["to"] - window["from"]) == (before["to"], 6)


class TestErasure:
    async def test_an_erasure_leaves_the_tree_whole(self, log: Log) -> None:
        erase = {"scope": "task", "what": "t-1", "reason": "asked for"}
        origin = log.house.standing(PROJECT, principal=PERSON)
        await log.house.apply("router", origin, writes=(Write(store="erasures", id=new_id(), body=erase),))
        log.house.restart()
        report = await log.verify()
        assert (report["broken"], report["erased"] > 2) == ([], True)
        proved = await log.house.report(PROJECT, Prove(task_id="t-1"))
        assert {leaf["body"] for leaf in proved["leaves"]} == {None}
        assert all(leaf["leaf"] for leaf in proved["leaves"])

    async def test_an_erased_leaf_is_not_replaced_by_another(self, log: Log) -> None:
        await log.run("UPDATE audit SET body = NULL, packed = NULL, salt = NULL, leaf = sha256('x') WHERE position = 3")
        assert not (await log.verify())["ok"]


async def test_an_auditor_sees_only_hashes_of_other_projects(log: Log) -> None:
    await log.house.delegated("billing", "t-9")
    listed = await log.house.report("billing", AuditLeaves())
    own = [leaf for leaf in listed["items"] if "body" in leaf]
    assert len(own) == 2
    assert all("t-9" in leaf["body"] for leaf in own)
    foreign = [leaf for leaf in listed["items"] if "body" not in leaf]
    assert len(foreign) > 4
    assert all(set(leaf) == {"index", "leaf"} for leaf in foreign)
    assert (await log.house.report("billing", Prove(task_id="t-1")))["leaves"] == []
