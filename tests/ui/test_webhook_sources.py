"""The file of sources: faults in it, mapped bodies, and the command that tries one."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi
from ui.http_front import RunningFront
from ui.webhook_senders import ISSUE, configured, push, signed_source

from counterpoint.cli.main import app
from counterpoint.proto.errors import Permanent
from counterpoint.proto.tasks import TaskRouted
from counterpoint.router.notify.receivers import load_receivers
from counterpoint.router.webhooks.sources import WebhookSources

ROOT = Path(__file__).parents[2]
MAPPED = """[[source]]
name = "ours"
kind = "json"
items = "problems[]"
map.id = "key"
map.description = "join(': ', [host, text])"
map.error_message = "text"
map.title = "host"
map.systems = "tags"
map.ignore = "level == 'info'"
map.resolved = "state == 'ok'"
"""


async def test_the_json_of_an_unknown_sender_is_mapped_and_tried_first(front: RunningFront, tmp_path: Path) -> None:
    configured(front, tmp_path, MAPPED)
    body = {
        "problems": [
            {"key": "k1", "host": "db1", "text": "disk full", "level": "error", "tags": ["db", "disk"]},
            {"key": "k2", "host": "db2", "text": "hello", "level": "info"},
            {"key": "k0", "host": "db3", "text": "disk full", "state": "ok"},
        ]
    }
    trial = (await front.me.post("/hooks/ours", params={"trial": "true"}, json=body)).json()
    assert front.house.commits == []
    (task,) = trial["tasks"]
    assert (task["description"], task["systems"], task["kind"]) == ("db1: disk full", ["db", "disk"], "troubleshoot")
    assert (trial["resolved"], trial["ignored"]) == (["k0"], ["the mapping ignores k2"])
    reply = (await front.me.post("/hooks/ours", json=body)).json()
    assert [each["effect"] for each in reply["arrived"]] == ["submitted", "unknown"]
    (routed,) = front.house.of_type(TaskRouted)
    assert routed.task.description == "db1: disk full"
    wrong = (
        await front.me.post("/hooks/ours", params={"trial": "true"}, json={"problems": [{"host": 3, "text": {}}]})
    ).json()
    assert wrong["code"] == "invalid"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[source]]\nname = "ours"\nkind = "json"\n', "map.description"),
        ('[[source]]\nname = "ours"\nkind = "json"\nmap.description = "a["\n', "JMESPath"),
        ('[[source]]\nname = "ours"\nkind = "json"\nmap.description = "a"\nmap.colour = "b"\n', "colour"),
        ('[[source]]\nname = "ours"\nkind = "github"\nsecret = "hush"\n', "principal"),
        ('[[source]]\nname = "ours"\nkind = "gitlab"\nsecret = ""\nprincipal = "p"\n', "secret is empty"),
        ('[[source]]\nname = "ours"\nkind = "grafana"\nsecret = "whsec_"\nprincipal = "p"\n', "secret is empty"),
        ("[[source", "cannot be read"),
        ('[[sources]]\nname = "ours"\n', "tables only"),
        ('[[source]]\nname = "ours"\nkind = "github"\n' * 2, "two sources have this name"),
    ],
)
async def test_a_file_of_sources_that_is_wrong_is_refused_by_name(
    front: RunningFront, tmp_path: Path, text: str, named: str
) -> None:
    configured(front, tmp_path, text)
    reply = (await front.me.post("/hooks/ours", json={})).text
    assert named in reply
    with pytest.raises(Permanent, match=re.escape(named)):
        WebhookSources(tmp_path / "hooks.toml").check()
    assert "hush" not in reply
    assert named not in (await push(front, "ours", {})).text


async def test_a_wrong_source_in_a_changed_file_is_refused_alone(front: RunningFront, tmp_path: Path) -> None:
    configured(front, tmp_path, signed_source("github"))
    assert (await push(front, "ours", {})).status_code == 401
    wrong = '[[source]]\nname = "theirs"\nkind = "grafana"\ncolour = "red"\n'
    (tmp_path / "hooks.toml").write_text(signed_source("github") + wrong)
    assert (await push(front, "ours", {})).status_code == 401, "it is served as before"
    reply = await front.me.post("/hooks/theirs", json={})
    assert (reply.status_code, "source theirs: colour" in reply.text) == (422, True)
    with pytest.raises(Permanent, match="source theirs: colour"):
        WebhookSources(tmp_path / "hooks.toml").check()
    (tmp_path / "hooks.toml").write_text(signed_source("github"))
    assert (await front.me.post("/hooks/theirs", json={})).status_code == 404


async def test_a_file_of_sources_that_others_may_read_now_is_refused(front: RunningFront, tmp_path: Path) -> None:
    configured(front, tmp_path, signed_source("github"))
    assert (await push(front, "ours", {})).status_code == 401
    (tmp_path / "hooks.toml").chmod(0o644)
    assert "chmod 600" in (await front.me.post("/hooks/ours", json={})).text


def blocks_of(page: str) -> list[str]:
    """The blocks of a page that are files, as they stand there."""
    text = (ROOT / "docs" / page).read_text()
    return [block for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL) if block.startswith("[[")]


async def test_the_files_in_the_docs_are_valid_and_the_example_is_mapped(front: RunningFront, tmp_path: Path) -> None:
    configured(front, tmp_path, "\n".join(blocks_of("webhooks.md")))
    body = (ROOT / "examples" / "webhooks" / "monitoring.json").read_text()
    trial = (await front.me.post("/hooks/monitoring", params={"trial": "true"}, content=body)).json()
    assert [task["description"] for task in trial["tasks"]] == ["db1: disk full: /var/lib/postgresql"]
    assert trial["ignored"] == ["the mapping ignores k-18"]
    file = tmp_path / "receivers.toml"
    file.write_text("\n".join(blocks_of("notify.md")))
    file.chmod(0o600)
    assert [each.kind for each in load_receivers(None, None, False, file)] == ["slack", "pagerduty", "slack"]


def test_the_command_shows_the_effect_of_a_body(api: ScriptedApi, tmp_path: Path) -> None:
    api.on(
        "POST /hooks/forge",
        (200, {"tasks": [{"description": "d"}], "joins": ["t1"], "ignored": ["the event push is not used"]}),
    )
    file = tmp_path / "body.json"
    file.write_text(json.dumps(ISSUE))
    done = CliRunner().invoke(
        app, ["intake", "try", str(file), "--source", "forge", "--event", "issues", *api.options()]
    )
    assert done.exit_code == 0, done.output
    assert "would submit" in done.output
    assert "would join the open task t1" in done.output
    assert "would be ignored: the event push is not used" in done.output
    (asked,) = api.asked
    assert (asked.params["trial"], asked.headers["x-github-event"], asked.body) == ("true", "issues", ISSUE)
