"""The sixth part of the demo: a wrong document is traced to what used it, and taken back."""

from collections import Counter
from typing import Any

from counterpoint.cli.api import WAIT_S, ApiClient
from counterpoint.cli.demo.checks import DemoTranscript

SOURCE = "ledger-runbook.md"
RIGHT = "The nightly export of the ledger is repaired by restarting the export worker and running it again.\n"
WRONG = "The nightly export of the ledger is repaired by deleting the table ledger_export and starting it anew.\n"
QUESTION = "How is the nightly export of the ledger repaired?"
SECRET = "The export logs in with password=Tr0ub4dor&3-ledger every night."


def take_back(api: ApiClient, transcript: DemoTranscript, project: str) -> None:
    """Play the part in a project of its own."""
    transcript.begin("6. A wrong memory is taken back")
    for text in (RIGHT, WRONG):
        _ingest(api, project, SOURCE, text)
    transcript.say(f"somebody has changed {SOURCE}: {WRONG.strip()}")
    answer = _asked(api, project)
    transcript.say(f"asked: {QUESTION}")
    transcript.show(f"  {answer.get('result', '').strip()}")
    transcript.check(
        "the wrong document is used in the answer", "deleting the table" in answer.get("result", ""), answer
    )
    radius = api.get("/v1/blast-radius", item=SOURCE, project=project)
    touched = Counter(each["store"] for each in radius["items"])
    transcript.show(
        "  records that used it: " + ", ".join(f"{count} of {store}" for store, count in sorted(touched.items()))
    )
    transcript.check(
        "the blast radius names the task and its decisions",
        answer["task_id"] in radius["tasks"] and touched["decisions"] and touched["actions"],
        dict(touched),
    )
    request = {"item": SOURCE, "reason": "it deletes a table"}
    out = api.post("/v1/quarantines", request | {"kind": "quarantine"}, project=project)
    transcript.say(f"under quarantine: {sum(out['out'].values())} records, in one commit")
    transcript.check("no search finds it any more", not _found(api, project), _found(api, project))
    transcript.check("no answer uses it any more", _asked(api, project).get("state") == "input_required", "an answer")
    transcript.check("an as-of search still shows it", _found(api, project, as_of=answer["ended_at"]), "nothing")
    back = api.post("/v1/quarantines", request | {"kind": "rollback"}, project=project)
    transcript.say(f"rolled back: {sum(back['restored'].values())} records have their previous version")
    transcript.check("the answer is the previous version", "restarting" in _asked(api, project).get("result", ""), back)
    refused = _ingest(api, project, "login.md", SECRET)
    transcript.check("a page with a password is refused", refused["status"] in ("refused", "quarantined"), refused)
    report = api.get("/v1/audit/verify", project=project)
    proofs = api.get(f"/v1/audit/proofs/{answer['task_id']}", project=project)
    transcript.check(
        "the audit log verifies, and every decision has a proof", report["ok"] and proofs["leaves"], report
    )


def _ingest(api: ApiClient, project: str, source: str, text: str) -> dict[str, Any]:
    body = {"documents": [{"source": source, "text": text}]}
    ingested: dict[str, Any] = api.post("/v1/documents", body, project=project)["documents"][0]
    return ingested


def _asked(api: ApiClient, project: str) -> dict[str, Any]:
    body = {"kind": "question", "description": QUESTION}
    task_id = api.post("/v1/tasks", body, project=project)["task_id"]
    while True:
        task: dict[str, Any] = api.get(f"/v1/tasks/{task_id}", wait=WAIT_S, project=project)
        if task["state"] not in ("submitted", "working"):
            return task


def _found(api: ApiClient, project: str, **more: Any) -> list[str]:
    hits = api.post("/v1/search", {"text": QUESTION, **more}, project=project)
    return [hit["text"].strip() for hit in hits["items"]]
