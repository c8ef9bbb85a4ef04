"""One pass through a house by its HTTP API alone, for tests of a house on other servers."""

import asyncio
import ssl

import httpx

from counterpoint.local.stack import Stack

PROJECT = "black-box"
DOCUMENT = "# Archive\n\nInvoices are kept for nine years, by decision of finance.\n"
QUESTION = "For how many years are invoices kept?"
FAILURE = {
    "project": PROJECT,
    "kind": "troubleshoot",
    "description": "the nightly load fails",
    "error_message": "could not resolve ldap.internal: DNS lookup timed out after 5 s (resolver 10.20.0.2:53)",
}
FIX = "restarted the resolver"


async def works(stack: Stack, verify: ssl.SSLContext | bool = True) -> None:
    """Ingest, ask, report how a failure was fixed, have it recalled for the next one, and verify the audit log."""
    headers = {"Authorization": f"Bearer {stack.endpoints.token}", "Prefer": "wait=30"}
    async with httpx.AsyncClient(
        base_url=stack.endpoints.http, headers=headers, params={"project": PROJECT}, timeout=60, verify=verify
    ) as http:
        ingested = await http.post(
            "/v1/documents", json={"project": PROJECT, "documents": [{"source": "archive.md", "text": DOCUMENT}]}
        )
        ingested.raise_for_status()
        asked = await http.post("/v1/tasks", json={"project": PROJECT, "kind": "question", "description": QUESTION})
        assert "nine years" in asked.json()["result"], asked.text
        first = (await http.post("/v1/tasks", json=FAILURE)).json()
        outcome = {"attempt": first.get("attempt") or 1, "outcome": "succeeded", "note": FIX}
        place = f"/v1/tasks/{first['task_id']}"
        reported = await http.post(f"{place}/outcome", json=outcome)
        assert reported.status_code == 202, reported.text
        while (await http.get(place)).json()["state"] != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        again = await http.post("/v1/tasks", json=FAILURE | {"description": "the nightly load fails again"})
        assert FIX in again.text, again.text
        assert (await http.get("/v1/dead-letters")).json()["items"] == []
        assert (await http.get("/v1/audit/verify")).json()["ok"]
