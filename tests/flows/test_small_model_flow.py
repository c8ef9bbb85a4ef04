"""The real small model behind the gateway. `make test-model` installs it first; see `counterpoint model`."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from flows.own_stack import own_stack

from counterpoint.local.small_model.package import QWEN, model_folder
from counterpoint.local.small_model.serve import serving, settings_of
from counterpoint.local.stack import Stack

PAGES = {
    "resolvers.md": "# Names\n\nThe workers use the resolvers 10.20.0.2 and 10.20.0.3. The team netops owns them.",
    "queues.md": "# Queues\n\nFailed deliveries of the harbour queue are retried for six hours, then they are dropped.",
}
QUESTIONS = ("Which resolvers do the workers use?", "For how long are failed deliveries of the harbour queue retried?")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the installed model, and configure it."""
    folder = model_folder(QWEN)
    if not folder.installed:
        pytest.skip("the small model is not installed: `counterpoint model install`")
    with serving(QWEN, folder, 0, Path(os.devnull)) as (url, _):
        settings = settings_of(QWEN, url)
        name = settings["COUNTERPOINT_MODEL"]
        lanes = dict.fromkeys(("COUNTERPOINT_MODEL_ROUTER", "COUNTERPOINT_MODEL_SESSIONS"), name)
        for setting, value in {**settings, **lanes}.items():
            monkeypatch.setenv(setting, value)
        yield name


@pytest.mark.model
@pytest.mark.timeout(600)
async def test_a_real_model_answers_with_quotes_that_exist_or_the_question_is_escalated(
    model: str, project: str
) -> None:
    async with own_stack() as stack:
        await _asked(stack, project, model)


async def _asked(stack: Stack, project: str, model: str) -> None:
    headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
    async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=300) as http:
        for source, text in PAGES.items():
            body = {"source": source, "text": text, "project": project}
            (await http.post("/v1/documents", json=body)).raise_for_status()
        for question in QUESTIONS:
            body = {"kind": "question", "description": question, "project": project}
            submitted = await http.post("/v1/tasks", json=body, headers={"Prefer": "wait=240"})
            task = submitted.raise_for_status().json()
            print(question, task["state"], task.get("result"))
            assert task["state"] in {"completed", "input_required"}
            for citation in (task.get("findings") or {}).get("citations", ()):
                assert citation["quote"] in PAGES[citation["source_path"]]
            assert task["state"] != "completed" or task["findings"]["citations"]
        await _planned(http, project)
        metrics = (await http.get(f"{stack.endpoints.services['manager'].health}/metrics")).text
    calls = re.findall(
        rf'counterpoint_llm_calls_total{{model="{model}",outcome="(\w+)",project="{project}"}} (\S+)', metrics
    )
    assert sum(float(count) for outcome, count in calls if outcome in {"settled", "unpriced"}) >= 1


async def _planned(http: httpx.AsyncClient, project: str) -> None:
    """Plans with and without a provider, in one session: what is cited exists, and nothing stands in for a provider."""
    for systems in (["Snowflake"], ["Zeppo Mail", "Snowflake"]):
        body = {"kind": "plan", "description": "Load the deliveries of the harbour queue every night",
                "systems": systems, "project": project, "session_id": "plans"}  # fmt: skip
        submitted = await http.post("/v1/tasks", json=body, headers={"Prefer": "wait=240"})
        task = submitted.raise_for_status().json()
        print(systems, task["state"], task.get("resolution"), (task.get("findings") or {}).get("caveats"))
        print(task.get("result") or task.get("proposal"))
        text = f"{task.get('result')} {task.get('proposal')}"
        assert not re.search(r"BashOperator|PythonOperator|```", text)
        for citation in (task.get("findings") or {}).get("citations", ()):
            assert citation["store"] == "providers" or citation["quote"] in PAGES[citation["source_path"]]
    assert [each["path"] for each in task["artifacts"]] == ["docs/provider_plan_zeppo_mail.md"]
    session = (await http.get("/v1/sessions/plans", params={"project": project})).json()
    print("session:", session["compacted_by"], session["compacted"])
