"""The command on a card whose source was taken back leads to a proposal without it."""

import shlex
import time
from pathlib import Path

from flows.project_command import Command

from counterpoint.card.content import card
from counterpoint.local.stack import Stack
from counterpoint.proto.tasks import Task

ERROR = "KilnError: E-4417 burner three does not ignite"
STEPS = {
    "wrong.md": "1. Open the gas valve by hand.\n2. Hold a match to burner three.\n",
    "right.md": "1. Clean the electrode of burner three.\n2. Restart the ignition sequence.\n",
}


def test_a_proposal_whose_source_was_taken_back_is_replaced_by_its_own_command(
    stack: Stack, project: str, tmp_path: Path
) -> None:
    run = Command(stack, project)
    for name, steps in STEPS.items():
        page = tmp_path / name
        page.write_text(f"# Burner three does not ignite (E-4417)\n\nKilnError E-4417, see {name}.\n\n{steps}")
        run("ingest", str(page))
    task = run("submit", "troubleshoot", "The kiln is cold.", "--error", ERROR, "--wait", code=4)
    quoted = task["findings"]["citations"][0]["source_path"]
    assert quoted in task["proposal"]
    run("quarantine", quoted, "--reason", "it is dangerous")
    shown = card(Task.model_validate(run("show", task["task_id"])))
    (outdated,) = (each for each in shown.sections if each.label == "outdated")
    name, *words, option, at = shlex.split(str(outdated.lines[-1]))
    assert (name, words[:3]) == ("counterpoint", ["outcome", task["task_id"], "failed"])
    assert (option, at) == ("--project", project)
    run(*words)
    deadline = time.monotonic() + 60
    while (replaced := run("show", task["task_id"]))["attempt"] == 1 or replaced["state"] != "input_required":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (other,) = set(STEPS) - {quoted.rpartition("/")[2]}
    assert other in replaced["proposal"]
    assert quoted not in replaced["proposal"]
    assert "outdated_sources" not in replaced.get("context", {})
