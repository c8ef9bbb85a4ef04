"""Questions through the whole house: following on one another, said on the line and counted."""

import re

import httpx
from flows.questions import ask, developer_steps, ingest_documents

from counterpoint.local.stack import Stack

JOBS = {
    "ownership.md": "# Ownership\n\nfinance_daily is owned by the finance team, which is reached in #finance-data.\n",
    "schedule.md": "# Schedule of finance_daily\n\nfinance_daily starts on weekdays at 06:30.\n",
    "orders.md": "# orders_ingest\n\nWhen does it run? orders_ingest runs every hour, at ten past.\n",
    "backups.md": "# Backups\n\nThe backups run at night; when they do not run, call the desk.\n",
    "reports.md": "# Reports\n\nReports of the warehouse run on Sundays, when nobody works.\n",
    "kitchen.md": "# Kitchen\n\nThe coffee machine is descaled on the first Monday of the month.\n",
    "garden.md": "# Garden\n\nPlants are watered by whoever opens the office.\n",
    "bicycles.md": "# Bicycles\n\nThe pump hangs beside the door of the cellar.\n",
}


async def test_a_follow_up_question_uses_the_session(http: httpx.AsyncClient, project: str, stack: Stack) -> None:
    await ingest_documents(http, project, JOBS)
    follow = "And when does it run?"
    alone = await ask(http, project, follow)
    assert "06:30" not in alone.get("result", "")
    session = f"s-{project}"
    first = await ask(http, project, "Who owns finance_daily?", session_id=session)
    assert "finance team" in first["result"]
    then = await ask(http, project, follow, session_id=session)
    assert then["state"] == "completed", then
    assert "06:30" in then["result"]
    actions, _ = await developer_steps(http, project, then["task_id"])
    assert "follow-up question: Who owns finance_daily?" in actions[0]["reasoning"]


async def test_decisions_of_each_node_are_on_the_stream_and_the_line_in_order(
    http: httpx.AsyncClient, project: str, stack: Stack
) -> None:
    await ingest_documents(http, project, JOBS)
    address = "ann@" + "example.com"
    task = await ask(http, project, f"Hello team! Could somebody tell {address} who owns finance_daily?")
    actions, decisions = await developer_steps(http, project, task["task_id"])
    assert [each["kind"] for each in actions][:3] == ["route", "search", "assess"]
    assert [each["decision_id"] for each in decisions] == [each["decision_id"] for each in actions]
    assert [each["parent_decision_id"] for each in decisions[1:]] == [each["decision_id"] for each in decisions[:-1]]
    assert address not in f"{task}{actions}{decisions}", "what the write filter takes out is in no step"
    metrics = (await http.get(f"{stack.endpoints.services['developer'].health}/metrics")).text
    counted = re.findall(r"^(counterpoint_rag_\w+)\{[^}]*\} ([1-9]\S*)$", metrics, re.MULTILINE)
    assert {"counterpoint_rag_routes_total", "counterpoint_rag_endings_total"} <= {name for name, _ in counted}
