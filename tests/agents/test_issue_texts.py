"""Texts of issues: inert whatever they hold, of a bounded length; commands in comments; trackers in a file."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from contract.pages import blocks
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.proto.tasks import Task
from counterpoint.router.issues.commands import outcome_in
from counterpoint.router.issues.marks import CommentMarks, mark_of_issue, marked_issue
from counterpoint.router.issues.texts import block, code, content_of, inert, number_in, plan_steps
from counterpoint.router.issues.trackers import Tracker, TrackerError, load_trackers
from counterpoint.router.notify.summary import summary_of

ROOT = Path(__file__).parents[2]
PIECES = (
    "@ann", "@shop/team", "#12", "shop/orders#12", "!7", "GH-3", "https://evil.example.com/x", "www.evil.example.com",
    "![x](https://e/x.png)", "<img src=x>", "<!-- counterpoint:issue x -->", "/close", "\n/close\n", "```", "`", "~~~",
    "- [ ] x", "$snippet", "%milestone", "~label", "&epic", "^alert#1", "[x]: http://e", "**b**", "\\", "|", " ", "é",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map("".join)
LIVE = re.compile(
    r"(?<![A-Za-z0-9_])[@#!$%&^]\w|https?://|\bwww\.|\bGH-\d|(?<!\\)[<`\[]|(?<!\\)!\[|^\s*/|^\s*[-+=#]", re.MULTILINE
)
TRACKER = Tracker.model_validate(
    {"name": "t", "kind": "github", "repo": "shop/orders", "token": "x", "users": {"Ann": "ann"}}
)


def task_of(**fields: Any) -> Task:
    known = {
        "task_id": "t-1", "project": "orders", "kind": "troubleshoot", "state": "input_required", "description": "d",
        "submitted_by": "x", "submitted_at": datetime(2026, 3, 2, tzinfo=UTC),
    }  # fmt: skip
    return Task.model_validate({**known, **fields})


@given(TEXTS)
def test_a_text_outside_of_code_is_inert(text: str) -> None:
    shown = inert(text)
    assert "\n" not in shown
    assert not LIVE.search(shown), shown
    assert marked_issue(shown) is None
    words = re.findall(r"[A-Za-zé]+", text)
    assert re.findall(r"[A-Za-zé]+", shown.replace("\u200b", "")) == words, "no word is lost"


@given(TEXTS)
def test_a_text_in_code_does_not_get_out(text: str) -> None:
    fence, *inside, end = block(text).split("\n")
    assert fence == end + "text"
    assert not any(line.strip().startswith(end) for line in inside)
    if span := code(text):
        run = re.match(r"`+", span)
        assert run is not None
        assert run.group() not in re.findall(r"`+", span[len(run.group()) : -len(run.group())])


@given(TEXTS, TEXTS, st.sampled_from(["troubleshoot", "plan"]))
def test_a_body_has_exactly_one_mark_for_any_task(error: str, text: str, kind: str) -> None:
    task = task_of(error_message=error, proposal=text, title=text, kind=kind, result=f"## Steps\n- {text}")
    body = content_of(TRACKER, task, summary_of(task, {})).body("the-id")
    assert marked_issue(body) == "the-id"


def test_a_body_is_below_the_limit_of_the_forges() -> None:
    step = "\n".join(f"{number}. {'*' * 400}" for number in range(200))
    long = "`*@#" * 40_000
    task = task_of(
        kind="plan",
        title=long,
        error_message=long,
        result=f"{long}\n# Steps\n{step}",
        description=long,
        source_ref=None,
    )
    content = content_of(TRACKER, task, summary_of(task, {}))
    assert len(content.body("x")) < 65_000
    assert len(content.title) <= 255


def test_marks_are_those_of_issues_and_comments() -> None:
    assert marked_issue(f"text\n{mark_of_issue('a-1')}\n{mark_of_issue('b-1')}") == "a-1"
    marks = CommentMarks("a-1", "secret")
    assert marks.purpose_of(f"\n{marks.of('card')}\nx") == "card"
    assert marks.purpose_of(f"> {marks.of('card')}\nfixed by x") is None
    for other in (CommentMarks("a-1", "other"), CommentMarks("a-2", "secret")):
        assert marks.purpose_of(other.of("card")) is None
    assert marks.purpose_of(marks.of("card").replace("card", "question")) is None
    for none in (None, "", "counterpoint:issue x", "<!-- counterpoint:issue -->"):
        assert marked_issue(none) is None


@pytest.mark.parametrize(
    ("text", "outcome", "by", "note"),
    [
        ("fixed by the proposal", "succeeded", "proposal", None),
        ("Fixed by your proposed fix. Thanks!", "succeeded", "proposal", "Thanks!"),
        ("**Fixed by the proposal**", "succeeded", "something_else", "the proposal"),
        ("fixed by: restarting LDAP\r\nafter lunch", "succeeded", "something_else", "restarting LDAP\nafter lunch"),
        ("fixed by itself", "succeeded", "nothing", None),
        ("FIXED BY nothing, really", "succeeded", "nothing", "really"),
        ("fixed by nothing else than a restart", "succeeded", "something_else", "nothing else than a restart"),
        ("fixed by the proposal of Ann", "succeeded", "something_else", "the proposal of Ann"),
        ("fixed by", "succeeded", "something_else", None),
        ("not fixed", "failed", None, None),
        ("Not fixed. Same error", "failed", None, "Same error"),
    ],
)
def test_a_comment_reports_an_outcome(text: str, outcome: str, by: str | None, note: str | None) -> None:
    report = outcome_in(text, "t-1")
    assert report is not None
    assert (report.task_id, report.outcome, report.by, report.note) == ("t-1", outcome, by, note)


@pytest.mark.parametrize(
    "text",
    ["", "> fixed by x", "It is fixed by x", "fixed bypass", "fixed", "was not fixed", "notfixed", "I\nfixed by x"],
)
def test_other_comments_report_nothing(text: str) -> None:
    assert outcome_in(text, "t-1") is None


@given(st.text(max_size=300))
def test_no_comment_is_too_much(text: str) -> None:
    for said in (text, f"fixed by {text}", f"not fixed {text * 100}"):
        report = outcome_in(said, "t-1")
        assert report is None or report.model_dump_json()


@pytest.mark.parametrize("heading", ["Steps", "TODO", "To do:", "TODOs", "Next steps", "Open tasks"])
def test_steps_of_a_plan_are_the_lists_below_their_headings(heading: str) -> None:
    text = f"# Plan\n- no\n## {heading}\n1. one\n2) two\n* three\n- [x] four\n  nested words\n### Why\n- no"
    assert plan_steps(text) == ("1. one", "2. two", "three", "four")
    assert plan_steps("no heading\n- no") == ()


def test_the_number_of_an_issue_is_that_of_its_address() -> None:
    base = "https://github.com/Shop/Orders"
    assert number_in(TRACKER, f"{base}/issues/7") == 7
    assert number_in(TRACKER, f"{base}/issues/7#issuecomment-1") == 7
    for other in (
        None,
        "",
        f"{base}/pull/7",
        f"{base}2/issues/7",
        "https://evil.example.com/shop/orders/issues/7",
        base,
    ):
        assert number_in(TRACKER, other) is None


# trackers


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "trackers.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def row(**fields: str) -> str:
    known = {"name": '"a"', "kind": '"github"', "repo": '"o/r"', "token": '"hush-hush"', **fields}
    return "[[tracker]]\n" + "\n".join(f"{name} = {value}" for name, value in known.items() if value) + "\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (row(kind='"gitea"'), "url is needed"),
        (row(repo='"only"'), "repo"),
        (row(repo='"a/b/c"'), "an owner and a name"),
        (row(repo='"../r"'), "may not contain"),
        (row(token=""), "token"),
        (row(token='""'), "token"),
        (row(token='"a\\nb"'), "no header"),
        (row(url='"ftp://x"'), "http or https"),
        (row(url='"https://a:b@x"'), "user"),
        (row(url='"https://x:99999"'), "port"),
        (row(api='"https://a:b@x"'), "api may not"),
        (row(kind='"bitbucket"'), "kind"),
        (row(poll_s="0"), "poll_s"),
        (row(tokn='"x"'), "tokn"),
        (row() + row(), "same name"),
        ("[[receiver]]\n", "[[tracker]]"),
        ("[[tracker]]\nname = \"\"\n", "name"),
    ],
)  # fmt: skip
def test_a_tracker_that_is_not_valid_is_refused_by_name(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(TrackerError) as refused:
        load_trackers(written(tmp_path, text))
    assert problem in str(refused.value)
    assert "hush-hush" not in str(refused.value)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrackerError, match="chmod 600"):
        load_trackers(written(tmp_path, row(), 0o644))
    assert load_trackers(None) == ()
    assert load_trackers(written(tmp_path, "")) == ()


def test_the_interface_follows_from_the_address(tmp_path: Path) -> None:
    text = row() + row(name='"b"', url='"https://ghe.example.com/"') + row(name='"c"', kind='"gitlab"', repo='"a/b/c"')
    assert [each.api_url for each in load_trackers(written(tmp_path, text))] == [
        "https://api.github.com",
        "https://ghe.example.com/api/v3",
        "https://gitlab.com/api/v4",
    ]
    (tracker,) = load_trackers(written(tmp_path, row(url='"https://git.example.com"', api='"http://git:3000/api/v1/"')))
    assert (tracker.api_url, tracker.is_of("https://git.example.com/O/r")) == ("http://git:3000/api/v1", True)


def test_logins_are_compared_without_case() -> None:
    assert TRACKER.principal_of("aNN") == "ann"
    assert TRACKER.principal_of("bob") is None
    assert TRACKER.principal_of(None) is None


def test_the_example_tracker_of_the_page_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "issues.md").read_text()
    (text,) = [each.text for each in blocks(page) if each.language == "text"]
    (tracker,) = load_trackers(written(tmp_path, text))
    fields = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert set(fields) == set(Tracker.model_fields)
    assert tracker.principal_of("bob.bee") == "bob"
    commands = re.findall(r"^\| `((?:not )?fixed[^`]*)`", page, re.MULTILINE)
    assert [(report := outcome_in(each, "t")) and report.by for each in commands] == [
        "proposal", "something_else", "nothing", None,
    ]  # fmt: skip
