"""The words "take over" in the note of a failure end the retries and go to the calling LLM, on a whole stack."""

import httpx
from flows.replayed_tasks import Tasks

from counterpoint.local.stack import Stack


async def test_take_over_in_a_note_and_in_an_override(stack: Stack, http: httpx.AsyncClient, project: str) -> None:
    tasks = Tasks(stack, http, project)
    error = "billing.errors.LedgerLocked: ledger 4711 is locked by user batch_7"
    await tasks.submit("first", "troubleshoot", "The invoice run stops", error_message=error)
    await tasks.post("/v1/tasks/first/override", {"instruction": "Unlock the ledger", "reasoning": "it is stale"})
    await tasks.until("first", "input_required", waiting_for="outcome")
    await tasks.post("/v1/tasks/first/outcome", {"outcome": "failed", "note": "it is locked again, please take over"})
    task = await tasks.until("first", "input_required", waiting_for="override")
    assert (task["escalation"]["to"], task["escalation"]["code"]) == ("calling_llm", "take_over")
    await tasks.post("/v1/tasks/first/override", {"instruction": "Stop batch_7 first", "reasoning": "it locks"})
    await tasks.until("first", "input_required", waiting_for="outcome")
    await tasks.post("/v1/tasks/first/override", {"instruction": "take over", "reasoning": "I have to leave"})
    await tasks.until("first", "input_required", waiting_for="override")
    await tasks.solved("first", note="stopped batch_7 and unlocked the ledger")
    assert (await tasks.replay("first"))["verdict"] == "same"
