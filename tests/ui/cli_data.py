"""Tasks as HTTP gives them, for the tests of the command line."""

from typing import Any

INCIDENT = "incident-0123456789abcdef01234567"
RUNBOOK = "Ask the resolver named in the error directly: `dig @RESOLVER ldap.internal +time=2`."


def incident(**more: Any) -> dict[str, Any]:
    """An incident whose first attempt waits for its outcome."""
    downstream = [
        {"kind": "job", "namespace": "ns", "name": "clean_orders", "hops": 1, "edge": edge, "owner": "team-ingest"}
        for edge in ("data", "control")
    ]
    return {
        "task_id": INCIDENT,
        "project": "orders",
        "kind": "troubleshoot",
        "state": "input_required",
        "waiting_for": "outcome",
        "title": "fetch_orders failed: could not resolve ldap.internal",
        "description": "ns/fetch_orders failed after 3 tries. Find out why.",
        "error_message": "could not resolve ldap.internal: DNS lookup timed out after 5 s (resolver 10.20.0.2:53)",
        "context": {
            "tries": 3,
            "retries": 2,
            "failed_at": "2026-11-17T05:30:12+00:00",
            "log_url": "http://airflow.example/log?try=3",
            "owner": "team-ingest",
        },
        "attempt": 1,
        "submitted_by": "counterpoint/lineage",
        "submitted_at": "2026-11-17T05:30:20Z",
        "proposal": f"From runbooks/orders.md [1]:\n\n> {RUNBOOK}\n\n[1] runbooks/orders.md, characters 10 to 94  ",
        "confidence": {
            "score": 0.66,
            "band": "medium",
            "terms": {
                "rag_similarity": 0.85,
                "rag_hits": 2,
                "provider_exists": "not applicable",
                "similar_dag": False,
            },
        },
        "findings": {
            "similar_attempts": [],
            "citations": [
                {
                    "store": "chunks",
                    "id": "c1",
                    "version": 1,
                    "source_path": "runbooks/orders.md",
                    "start": 10,
                    "end": 94,
                    "quote": RUNBOOK,
                }
            ],
            "downstream": downstream,
            "next_steps": ["runbooks/orders.md: Restart the resolver's cache."],
            "caveats": ["only two sources"],
        },
    } | more


def escalated(**more: Any) -> dict[str, Any]:
    """The incident after two failures with the same error."""
    attempts = [
        {
            "id": f"a{number}",
            "when": f"2026-11-17T06:0{number}:00Z",
            "tried": f"thing {number}",
            "outcome": "failed",
            "evidence": "reported",
            "by": "developer",
            "score": 1.0,
        }
        for number in (1, 2)
    ]
    findings = incident()["findings"] | {"similar_attempts": attempts}
    how = f'counterpoint override {INCIDENT} "INSTRUCTION" --reason "WHY" --project orders'
    need = {"kind": "decision", "what": "how to go on", "how": how}
    escalation = {"to": "calling_llm", "code": "repeated_failure", "needs": [need]}
    return incident(waiting_for="override", attempt=2, findings=findings, escalation=escalation) | more


def answered(**more: Any) -> dict[str, Any]:
    """A question that was answered."""
    return {
        "task_id": "question-1",
        "project": "default",
        "kind": "question",
        "state": "completed",
        "resolution": "answered",
        "description": "Who owns finance_daily?",
        "submitted_by": "administrator",
        "submitted_at": "2026-11-17T05:30:20Z",
        "result": "team-finance [1]\n\n[1] ownership.md, characters 5 to 17  ",
    } | more
