"""Random principals, services, tokens, runs, operations and bodies at memory's real door, against a second reading of
the contract; and with any mend of a hole that was found taken out, the two disagree."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from access.random_requests import walk
from memory_service.house import House

from counterpoint.memory.access.revocations import Revocations
from counterpoint.memory.commit import planner
from counterpoint.memory.commit.inbound import InboundMessages
from counterpoint.memory.provenance.read_sets import ReadSets
from counterpoint.memory.record.stamps import Provenance
from counterpoint.memory.rpc.authority import Authority

SEED, STEPS = 2, 600
LONG = 100_000


async def test_the_door_answers_as_the_model_says(house: House) -> None:
    made = await walk(house, SEED, STEPS)
    assert {"done", "conflict", "ended", "revoked", "task", "role", "invalid", "store"} <= made.done.keys(), made.done


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
async def test_the_door_answers_as_the_model_says_for_long(house: House) -> None:
    began, done = time.monotonic(), 0
    while done < LONG:
        await walk(house, 1000 + done, 5_000)
        done += 5_000
        print(f"{done} steps in {time.monotonic() - began:.0f} s", flush=True)


async def never(*_: Any) -> bool:
    return False


async def nobodys(*_: Any) -> tuple[dict[tuple[str, str], str], Provenance]:
    return {}, Provenance()


async def none(*_: Any) -> frozenset[str]:
    return frozenset()


def of_one_run(reads: ReadSets, key: Any, requests: int) -> Any:
    """Return the read stamps of one run, without those of the others."""
    reads._stamps.pop(key[:2], None)
    return SO_FAR(reads, key, requests)


async def whoever_is_named(self: Authority, origin: Any) -> Any:
    return await self.principals.of(origin.principal)


SO_FAR: Callable[..., Any] = ReadSets.so_far
MENDS: dict[str, tuple[Any, str, Any]] = {
    "a capability ingests for whom it names": (Authority, "asker", whoever_is_named),
    "other tasks' records are changed": (InboundMessages, "changed_records", nobodys),
    "bodies are not validated": (planner, "body_problems", lambda *_: ()),
    "every name is an id": (planner, "_RECORD_ID", planner.re.compile(r"[\s\S]+")),
    "a capability outlives its task": (InboundMessages, "has_ended", never),
    "nothing is revoked": (Revocations, "of", none),
    "a new run forgets what was read": (ReadSets, "so_far", of_one_run),
}


@pytest.mark.parametrize("mend", MENDS)
async def test_without_a_mend_the_two_disagree(house: House, monkeypatch: pytest.MonkeyPatch, mend: str) -> None:
    owner, name, instead = MENDS[mend]
    monkeypatch.setattr(owner, name, instead)
    with pytest.raises(AssertionError, match=f"seed {SEED}"):
        await walk(house, SEED, STEPS)


def test_the_reference_models_are_short_and_import_no_product_code() -> None:
    texts = [
        (Path(__file__).parent / f"{name}.py").read_text()
        for name in ("request_model", "policy_reference", "random_values")
    ]
    assert not any("counterpoint." in line for text in texts for line in text.splitlines() if "import" in line)
    assert sum(len(text.splitlines()) for text in texts[:2]) <= 200
