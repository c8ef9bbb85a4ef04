"""The lane of a task follows from what was asked for, and its reason quotes nobody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.proto.tasks import SubmitTask
from counterpoint.router.intake.lanes import routing

LANES = {"question": "answer", "troubleshoot": "investigate", "plan": "plan", "develop": "build"}
SECRET = "zq7w9-never-said"


@pytest.mark.parametrize("kind", LANES)
def test_each_kind_has_its_lane(kind: str) -> None:
    assert routing(SubmitTask(kind=kind, description="x")).lane == LANES[kind]  # type: ignore[arg-type]


@given(kind=st.sampled_from(sorted(LANES)), error=st.booleans(), job=st.booleans(), systems=st.integers(0, 3))
def test_the_reason_tells_the_basis_and_no_text_of_the_sender(kind: str, error: bool, job: bool, systems: int) -> None:
    task = SubmitTask.model_validate(
        {
            "kind": kind,
            "description": SECRET,
            "title": SECRET,
            "error_message": SECRET if error else None,
            "systems": [SECRET] * systems,
            "target": {"job": {"namespace": SECRET, "name": SECRET}} if job else None,
        }
    )
    reason = routing(task).reason
    assert SECRET not in reason
    assert ("no error" in reason) is not error
    assert ("no job" in reason) is not job
    assert f"{systems} external system" in reason
