"""The starter pack as it is installed, judged on errors that were not used for writing it."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from flows.lesson_keeper import Keeper
from flows.questions import settled
from ui.test_starter_pages import STARTER

from counterpoint.bench.triage import ExpectedAnswer, TriageCase, read_cases
from counterpoint.cli.lessons.starter import starter_pages
from counterpoint.local.stack import Stack

PAGES = {page.source: page.text for page in starter_pages()}


def section(citation: dict[str, Any]) -> str:
    """The section of a page that a citation lies in."""
    text = PAGES[citation["source_path"]]
    begin = text.rfind("\n## ", 0, citation["end"])
    return text[begin : text.find("\n## ", begin + 1) % len(text)]


def holds(case: TriageCase, citation: dict[str, Any]) -> bool:
    """Whether a citation lies in the section that a case is about."""
    assert isinstance(case.expect, ExpectedAnswer)
    return all(text in section(citation) for text in case.expect.must)


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_the_right_section_is_cited_and_nothing_is_proposed(
    stack: Stack, http: httpx.AsyncClient, project: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await Keeper(stack)("lessons", "starter", "install", project=project)
    first = among = answerable = proposed = 0
    for case in read_cases(Path(STARTER)):
        body = {"kind": case.kind, "description": case.text, "error_message": case.error_message, "project": project}
        task_id = (await http.post("/v1/tasks", json=body)).raise_for_status().json()["task_id"]
        task = await settled(http, project, task_id)
        proposed += bool(task.get("proposal"))
        assert (task.get("confidence") or {}).get("band") != "high"
        citations = task["findings"]["citations"]
        if isinstance(case.expect, ExpectedAnswer):
            answerable += 1
            first += bool(citations) and holds(case, citations[0])
            among += any(holds(case, each) for each in citations)
    with capsys.disabled():
        print(f"\nof {answerable}: {first} cited first, {among} cited; {proposed} proposed")
    assert proposed == 0
    assert first / answerable >= 0.85
    assert among / answerable >= 0.95
