"""The developer's handler with a commit for each step of a question, also where no model is configured."""

from counterpoint.client import Gateway, Memory
from counterpoint.developer.evidence.calibration import Calibration, load_calibration
from counterpoint.developer.handlers import OFFLINE, answer_question, handle_delegated
from counterpoint.developer.rag.step_runner import StepRunner
from counterpoint.developer.settings import Deadlines
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import TaskDelegated


async def handle_in_steps(
    message: TaskDelegated,
    memory: Memory,
    gateway: Gateway = OFFLINE,
    calibration: Calibration | None = None,
    answer_deadline_s: float = Deadlines.answer_s,
) -> Commit:
    """Return the commit of a delegated task; for a question the closing one."""
    calibration = calibration or load_calibration()
    if message.lane != "answer" or message.override is not None:
        return await handle_delegated(message, memory, gateway, calibration, Deadlines(answer_deadline_s))
    steps = StepRunner(message, memory, gateway, calibration, answer_deadline_s)
    return await answer_question(message, memory, steps, calibration)
