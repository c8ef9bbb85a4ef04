"""Incidents that a person merged are one: counted, shown and undone, in any order with the events."""

import random
from collections import Counter
from typing import Any

import pytest
from agents.incident_reference import final_incidents, history
from agents.incident_simulation import run_event
from agents.lineage_house import House
from agents.test_lineage_kills import MortalHouse, final_state
from agents.test_lineage_order import of

from counterpoint.lineage.incidents.incident import IncidentEnding, IncidentLimits, IncidentRecord

QUICK = (10, 19, 24, 44, 101, 409)
MORE = (30, 33, 34, 35, 37, 53, 58, 69, 71, 80, 88, 89, 92, 94, 95)
PATIENT = IncidentLimits(incidents_per_hour=1000, retry_grace_s=900)


def fail(second: int, job: str, run: str, **more: Any) -> dict[str, Any]:
    return run_event("FAIL", second, job=job, run_id=run, error=f"{job} is broken", **more)


async def two(house: House) -> tuple[str, str]:
    """Two incidents that stand: of jobs `a` and `b`."""
    await house.take([fail(0, "a", "a1"), fail(5, "b", "b1")])
    first, second = house.tasks
    assert first.task_id
    assert second.task_id
    return first.task_id, second.task_id


def by_id(house: House) -> dict[str, IncidentRecord]:
    return {incident.incident_id: incident for incident in house.incidents}


async def test_the_next_failure_of_either_job_is_counted_on_the_card_of_the_one_incident() -> None:
    house = House(limits=PATIENT)
    whole, part = await two(house)
    await house.deliver(house.merged(whole, part))
    await house.take([fail(10, "b", "b2"), fail(20, "a", "a2")])
    live = by_id(house)[whole].live
    assert (live["repeats"]["count"], live["repeats"]["last_at"][17:19]) == (4, "20")
    (shown,) = live["merged"]
    assert (shown["task_id"], shown["name"], shown["count"], shown["over"]) == (part, "b", 2, False)
    assert by_id(house)[part].live["merged_into"] == whole
    assert len(house.tasks) == 2


async def test_failures_that_follow_from_a_part_are_listed_with_the_whole() -> None:
    house = House(limits=PATIENT)
    await house.take([fail(0, "a", "a1"), fail(5, "b", "b1", writes=["t"])])
    whole, part = (task.task_id or "" for task in house.tasks)
    await house.deliver(house.merged(whole, part))
    await house.take([fail(9, "c", "c1", reads=["t"])])
    live = by_id(house)[whole].live
    assert ([row["name"] for row in live["affected"]], live["affected_count"]) == (["c"], 1)


async def test_undoing_leaves_each_its_own_failures_and_task() -> None:
    house = House(limits=PATIENT)
    whole, part = await two(house)
    await house.deliver(house.merged(whole, part))
    await house.take([fail(10, "b", "b2")])
    await house.deliver(house.unmerged(whole, part))
    await house.take([fail(20, "b", "b3")])
    lives = {incident_id: incident.live for incident_id, incident in by_id(house).items()}
    assert [lives[each]["repeats"]["count"] for each in (whole, part)] == [1, 3]
    assert [(lives[each].get("merged", []), lives[each].get("merged_into", "")) for each in (whole, part)] == [
        ([], ""),
        ([], ""),
    ]
    assert len(house.tasks) == 2


async def test_a_split_takes_the_place_of_a_merge() -> None:
    house = House(limits=PATIENT)
    whole, part = await two(house)
    await house.deliver(house.merged(whole, part))
    await house.deliver(house.merged(whole, part, relation="different"))
    assert (by_id(house)[part].joins, by_id(house)[whole].parts) == ((), ())


async def test_a_part_stands_for_itself_when_the_whole_is_over_and_is_over_by_itself() -> None:
    house = House(limits=PATIENT)
    whole, part = await two(house)
    await house.deliver(house.merged(whole, part))
    await house.take([run_event("COMPLETE", 30, job="b", run_id="b3")])
    assert [row["over"] for row in by_id(house)[whole].live["merged"]] == [True]
    assert [outcome.task_id for outcome in house.outcomes] == [part]
    other = House(limits=PATIENT)
    whole, part = await two(other)
    await other.deliver(other.merged(whole, part))
    await other.take([run_event("COMPLETE", 30, job="a", run_id="a3")])
    assert (by_id(other)[part].active, by_id(other)[part].live["merged_into"]) == (True, "")


async def test_the_end_of_the_whole_by_its_task_leaves_the_part_to_itself() -> None:
    house = House(limits=PATIENT)
    whole, part = await two(house)
    await house.deliver(house.merged(whole, part))
    changed = house.ended(whole, "cancelled")
    await house.deliver(changed, task_id=whole)
    assert by_id(house)[part].live["merged_into"] == ""


@pytest.mark.parametrize("first", ["the word", "the root"])
async def test_parts_of_a_merged_incident_follow_it_into_the_root(first: str) -> None:
    followers = [fail(5, "f", "f1", reads=["t"]), fail(6, "g", "g1", reads=["t"]), fail(7, "b", "b1")]
    root = fail(1, "root", "r1", writes=["t"])
    rehearsed = House(limits=PATIENT)
    await rehearsed.take([*followers, root])
    (gone,) = (i for i in rehearsed.incidents if i.ending is IncidentEnding.MERGED)
    (part,) = (i for i in rehearsed.incidents if i.job == "job:ns/b")
    house = House(limits=PATIENT)
    await house.take(followers)
    if first == "the root":
        await house.take([root])
    await house.deliver(house.merged(gone.incident_id, part.incident_id))
    if first == "the word":
        await house.take([root])
    stays = gone.closed_by or ""
    assert by_id(house)[part.incident_id].live["merged_into"] == stays
    await house.take([fail(30, "b", "b2"), fail(31, "root", "r2", writes=["t"])])
    live = by_id(house)[stays].live
    assert (live["repeats"]["count"], [row["task_id"] for row in live["merged"]]) == (4, [part.incident_id])


@pytest.mark.parametrize("named", ["task-1", "incident-0"])
async def test_a_merge_of_an_unknown_incident_changes_nothing(named: str) -> None:
    house = House(limits=PATIENT)
    whole, _ = await two(house)
    before = house.incidents
    await house.deliver(house.merged(named, whole))
    assert house.incidents == before


async def test_an_undo_that_overtakes_its_merge_wins() -> None:
    house = House(limits=PATIENT)
    whole, part = await two(house)
    merged = house.merged(whole, part)

    async def undone() -> None:
        await house.deliver(house.unmerged(whole, part))

    house.before_commit = undone
    await house.deliver(merged)
    assert by_id(house)[part].joins == ()
    assert house.conflicts == 1


def expected(house: House, words: dict[tuple[str, str], bool]) -> dict[str, str]:
    """The whole of each standing part, by the words and the records alone: the part of the smallest depth."""
    records = by_id(house)

    def stands(incident_id: str) -> str | None:
        while records[incident_id].ending is IncidentEnding.MERGED:
            incident_id = records[incident_id].closed_by or ""
        return incident_id if records[incident_id].active else None

    pairs = [(stands(part), stands(whole)) for (whole, part), said in words.items() if said]
    edges = {(part, whole) for part, whole in pairs if part and whole and part != whole}
    sets = [{incident_id} for incident_id in records]
    for part, whole in edges:
        one = next(each for each in sets if part in each)
        other = next(each for each in sets if whole in each)
        if one is not other:
            sets.remove(other)
            one |= other
    return {incident_id: min(each) for each in sets if len(each) > 1 for incident_id in each}


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE)])
async def test_words_and_events_in_any_order_leave_the_reference_s_incidents_and_the_joins_that_are_said(
    seed: int,
) -> None:
    known, draw = history(seed), random.Random(seed)
    events = draw.sample(known.events, k=len(known.events))
    house, words = House(limits=PATIENT), dict[tuple[str, str], bool]()
    for at in range(0, len(events), 8):
        await house.take_at_once(events[at : at + 8])
        if draw.random() < 0.3:
            await house.wait(1000)
        said = [each for each, now in words.items() if now]
        asked = [i.incident_id for i in house.incidents if i.active and i.has_task]
        if said and draw.random() < 0.25:
            whole, part = draw.choice(said)
            words[whole, part] = False
            changed = house.unmerged(whole, part)
        elif len(asked) > 1:
            whole, part = draw.sample(asked, 2)
            if (part, whole) in words:
                continue
            words[whole, part] = True
            changed = house.merged(whole, part)
        else:
            continue
        await house.deliver(changed)
        if draw.random() < 0.3:
            await house.deliver(changed)
    await house.wait(10_000)
    assert of([i for i in house.incidents if i.active]) == final_incidents(known)
    together, records = expected(house, words), by_id(house)
    tops: dict[str, set[str]] = {}
    for incident in (i for i in house.incidents if i.active):
        top = incident.live.get("merged_into") or incident.incident_id
        assert not records[top].live.get("merged_into")
        tops.setdefault(top, set()).add(incident.incident_id)
    assert sorted(sorted(each) for each in tops.values() if len(each) > 1) == sorted(
        sorted(i for i in together if together[i] == name) for name in set(together.values())
    )
    for top, each in tops.items():
        rows = records[top].live.get("merged", [])
        assert {row["task_id"] for row in rows if not row["over"]} == each - {top}
        assert Counter({row["task_id"]: row["count"] for row in rows}) == Counter(
            {row["task_id"]: records[row["task_id"]].count for row in rows}
        )
        earlier = records[top].earlier
        total = records[top].count + sum(row["count"] for row in rows) + (earlier.count if earlier else 0)
        assert records[top].live["repeats"]["count"] == total


@pytest.mark.parametrize("undone", [False, True], ids=["merge", "undo"])
@pytest.mark.parametrize("answered", [False, True], ids=["before memory has it", "after"])
async def test_a_merge_during_which_lineage_is_killed_has_one_effect(undone: bool, answered: bool) -> None:
    async def lived(dies_at: int | None) -> tuple[MortalHouse, int]:
        house = MortalHouse(limits=PATIENT)
        whole, part = await two(house)
        word = house.merged(whole, part)
        if undone:
            await house.deliver(word)
            word = house.unmerged(whole, part)
        house.dies_at, house.answered = dies_at, answered
        awaits = await house.survive(word)
        house.dies_at = None
        await house.take([fail(10, "b", "b2")])
        return house, awaits

    unharmed, awaits = await lived(None)
    assert awaits >= 2
    assert by_id(unharmed)[unharmed.tasks[0].task_id or ""].live["repeats"]["count"] == (1 if undone else 3)
    for dies_at in range(1, awaits + 1):
        house, _ = await lived(dies_at)
        assert final_state(house) == final_state(unharmed), dies_at
