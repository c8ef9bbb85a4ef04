"""Evaluation sets of the examples: layout, counts, and that the strings that decide a case stand in its page."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TRIAGE = ROOT / "examples" / "triage"
RECOGNITION = ROOT / "examples" / "recognition"
TRAINING = ROOT / "examples" / "recognition-training"
MORE = ROOT / "examples" / "recognition-more"
REPORT = {"id", "pair", "role", "system", "title", "description", "error_message", "failed_attempts", "fix", "source"}


def _cases(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "cases.jsonl").read_text().splitlines()]


def _counts(folder: Path, heading: str) -> dict[str, int]:
    """The second column of the table below a heading of the folder's README, by the first."""
    text = (folder / "README.md").read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    return {name: int(count) for name, count in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)}


def _pages() -> dict[str, str]:
    return {f"docs/{path.name}": path.read_text() for path in sorted((TRIAGE / "docs").iterdir())}


def test_triage_cases_have_the_layout_of_the_readme() -> None:
    cases = _cases(TRIAGE)
    assert len({case["id"] for case in cases}) == len({case["text"] for case in cases}) == len(cases) == 100
    for case in cases:
        assert {"id", "text", "kind", "expect", "type"} <= case.keys() <= {*case, "error_message"}, case["id"]
        assert case["kind"] in ("question", "troubleshoot"), case["id"]
        assert (case["expect"] == "refuse") == case["type"].startswith("refuse_"), case["id"]
        if case["expect"] != "refuse":
            assert case["expect"].keys() == {"source", "must", "must_not"}, case["id"]
            assert case["expect"]["must"], case["id"]
    assert Counter(case["type"] for case in cases) == _counts(TRIAGE, "## Types")


def test_the_deciding_strings_of_a_triage_case_stand_in_its_page() -> None:
    pages = _pages()
    assert len(pages) == 15
    answered = [case for case in _cases(TRIAGE) if case["expect"] != "refuse"]
    for case in answered:
        source, must, must_not = (case["expect"][name] for name in ("source", "must", "must_not"))
        lines = pages[source].splitlines()
        for string in must:
            assert any(string in line for line in lines), f"{case['id']}: {string}"
        for string in must_not:
            assert any(string in page for page in pages.values()), f"{case['id']}: {string}"
            assert not any(string in wanted for wanted in must), f"{case['id']}: {string}"
    assert {case["expect"]["source"] for case in answered} == pages.keys(), "every page answers something"


def test_recognition_reports_have_the_layout_of_the_readme() -> None:
    reports = _cases(RECOGNITION)
    assert len({report["id"] for report in reports}) == len(reports)
    assert len({(report["title"], report["description"]) for report in reports}) == len(reports)
    roles = Counter(report["role"].partition(":")[0] for report in reports)
    assert roles == _counts(RECOGNITION, "## Roles")
    assert roles["first"] == 60
    assert roles["near_miss_of"] == 40
    for report in reports:
        assert REPORT <= report.keys() <= REPORT | {"difficulty", "confusable_with", "why_different", "note"}, report[
            "id"
        ]
        assert report["title"], report["id"]
        assert report["source"], report["id"]
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+|retold from common knowledge", report["source"]), report["id"]
    hard = Counter(report["difficulty"] for report in reports if report["role"] == "second")
    assert hard == _counts(RECOGNITION, "## Difficulties")


def test_training_reports_have_the_layout_and_no_error_of_the_test_set() -> None:
    reports = _cases(TRAINING)
    assert len({report["id"] for report in reports}) == len(reports)
    roles = Counter(report["role"].partition(":")[0] for report in reports)
    assert roles == _counts(TRAINING, "## Roles")
    firsts = {report["id"]: report for report in reports if report["role"] == "first"}
    for report in reports:
        assert REPORT <= report.keys() <= REPORT | {"difficulty", "why_different"}, report["id"]
        role, _, target = report["role"].partition(":")
        assert role != "near_miss_of" or (target in firsts and report["why_different"]), report["id"]
        assert bool(report["fix"]) == (role == "first"), report["id"]
    held_back = {report["error_message"] for report in _cases(RECOGNITION)} - {""}
    assert not held_back & {report["error_message"] for report in reports}


def test_further_recognition_reports_have_the_layout_too() -> None:
    reports = _cases(MORE)
    assert len({report["id"] for report in reports}) == len(reports)
    assert Counter(report["role"].partition(":")[0] for report in reports) == _counts(MORE, "## Roles")
    hard = Counter(report["difficulty"] for report in reports if report["role"] == "second")
    assert hard == _counts(MORE, "## Difficulties")
    firsts = {report["id"] for report in reports if report["role"] == "first"}
    for report in reports:
        assert REPORT <= report.keys() <= REPORT | {"difficulty", "why_different"}, report["id"]
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+|retold from common knowledge", report["source"]), report["id"]
        role, _, target = report["role"].partition(":")
        assert role != "near_miss_of" or (target in firsts and report["why_different"]), report["id"]
        assert role != "first" or report["fix"], report["id"]


def test_every_recognition_pair_has_one_fix_and_one_or_two_seconds() -> None:
    reports = _cases(RECOGNITION)
    firsts = {report["id"]: report for report in reports if report["role"] == "first"}
    seconds = Counter(report["pair"] for report in reports if report["role"] == "second")
    assert seconds.keys() == {first["pair"] for first in firsts.values()}
    assert set(seconds.values()) <= {1, 2}
    assert all(first["fix"] for first in firsts.values())
    assert not any(report["fix"] for report in reports if report["role"] == "second")
    for report in reports:
        role, _, target = report["role"].partition(":")
        assert role != "near_miss_of" or target in firsts, report["id"]
        assert role != "near_miss_of" or report["why_different"], report["id"]
        assert (report["pair"] is None) == (role in ("near_miss_of", "single")), report["id"]
        assert set(report.get("confusable_with", ())) <= seconds.keys() - {report["pair"]}, report["id"]
    unknown = {bool(report["fix"]) for report in reports if report["role"] == "single"}
    assert unknown == {True, False}, "some single reports are learned, some are new"
