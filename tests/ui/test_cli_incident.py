"""Incident files: those of the examples are read, others are refused field by field, and only files hold the story."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from counterpoint.cli.demo.incident import DemoIncident, IncidentEvents, read_incident
from counterpoint.cli.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
INCIDENTS = sorted((ROOT / "examples" / "incidents").glob("*.yaml"))
SPOKEN = ("instruction", "reasoning", "note", "description", "error_message", "text", "constraints")


def spoken(value: Any) -> set[str]:
    """All texts in a story that somebody says."""
    if isinstance(value, dict):
        own = {each for name, each in value.items() if name in SPOKEN and isinstance(each, str)}
        own |= {each for name, each in value.items() if name in SPOKEN and isinstance(each, list) for each in each}
        return own | {said for each in value.values() for said in spoken(each)}
    if isinstance(value, list):
        return {said for each in value for said in spoken(each)}
    return set()


@pytest.mark.parametrize("path", INCIDENTS, ids=lambda path: path.stem)
def test_the_examples_are_incidents(path: Path) -> None:
    incident = read_incident(path)
    assert incident.knowledge
    assert all(file.is_absolute() for file in incident.knowledge)
    assert list(incident.failure.lines()) or incident.failure.task


def test_a_failure_without_documents_is_posted_as_a_flow_with_its_part_and_its_whole() -> None:
    """The whole's own error says nothing, and the part's last try stands in the same burst."""
    incident = read_incident(ROOT / "examples" / "incidents" / "orders.yaml").undocumented
    assert incident is not None
    for arrival in (incident.failure, incident.again, incident.near_miss):
        failed = [event for line in arrival.lines() if (event := json.loads(line))["eventType"] == "FAIL"]
        part, whole = failed[-2]["run"], failed[-1]["run"]
        assert failed[-2]["job"]["name"] == incident.job
        assert part["facets"]["parent"]["run"]["runId"] == whole["runId"]
        task, instance = part["facets"]["airflow"]["task"], part["facets"]["airflow"]["taskInstance"]
        assert instance["try_number"] == task["retries"] + 1
        assert whole["facets"]["errorMessage"]["message"] == "task_failure"
    runs = [{json.loads(line)["run"]["runId"] for line in each.lines()} for each in (incident.failure, incident.again)]
    assert not runs[0] & runs[1]


def test_two_incidents_share_no_words_of_their_stories() -> None:
    stories = [spoken(yaml.safe_load(path.read_text())) for path in INCIDENTS]
    assert len(stories) >= 2
    assert all(stories)
    assert not set.intersection(*stories)


def test_neither_command_line_nor_services_hold_a_text_of_an_incident() -> None:
    code = [*(ROOT / "libs" / "cli").rglob("*.py"), *(ROOT / "services").rglob("*.py")]
    held = " ".join(" ".join(path.read_text().split()) for path in code).lower()
    for path in INCIDENTS:
        for said in spoken(yaml.safe_load(path.read_text())):
            words = re.findall(r"\S+", said.lower())
            for at in range(max(1, len(words) - 4)):
                assert " ".join(words[at : at + 5]) not in held, said


def test_a_misspelt_field_or_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "known.md").write_text("known")
    story = yaml.safe_load((ROOT / "examples" / "incidents" / "freeipa.yaml").read_text())
    file = tmp_path / "incident.yaml"

    def refused(**more: Any) -> str:
        file.write_text(yaml.safe_dump(story | {"knowledge": ["known.md"]} | more))
        with pytest.raises(UsageError) as error:
            read_incident(file)
        return str(error.value)

    assert "knowlege" in refused(knowlege=["known.md"])
    assert "nowhere.md does not exist" in refused(knowledge=["nowhere.md"])
    assert "failure" in refused(failure={"downstream": []})
    assert "resolution.report.outcome" in refused(resolution={"report": {"outcome": "splendid"}})


def test_events_are_taken_line_by_line_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"a":  1}\n\n{"b": 2}\n')
    arrival = IncidentEvents.model_validate({"events": "events.jsonl"}, context={"folder": tmp_path})
    assert list(arrival.lines()) == ['{"a":  1}', '{"b": 2}']


def test_an_incident_cannot_be_changed() -> None:
    incident = read_incident(INCIDENTS[0])
    with pytest.raises(ValueError, match="frozen"):
        incident.name = "other"  # type: ignore[misc]
    assert DemoIncident.model_config["extra"] == "forbid"
