"""The running small model, as a child process."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from counterpoint.local.small_model.package import ModelFolder, ModelPackage
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient

_SERVER = Path(__file__).with_name("server.py")
_STOP_S = 10.0
_ANSWER_S, _INVESTIGATION_S = 180, 900
"""Deadlines of a question and of an investigation: two cores read some 100 tokens per second."""


class NotInstalled(Permanent):
    """The small model is not installed."""

    def __init__(self, package: ModelPackage) -> None:
        problem = "is not installed: run `counterpoint model install`"
        super().__init__(ErrorCode.NOT_FOUND, (Problem(field=package.name, problem=problem),))


def settings_of(package: ModelPackage, url: str) -> dict[str, str]:
    """Return the variables that make a house use the served model, with deadlines that suit its speed."""
    return {
        "COUNTERPOINT_MODEL": f"openai/{package.name}",
        "COUNTERPOINT_ANSWER_DEADLINE_S": str(_ANSWER_S),
        "COUNTERPOINT_INVESTIGATION_DEADLINE_S": str(_INVESTIGATION_S),
        "OPENAI_API_BASE": url,
        "OPENAI_API_KEY": "none",
    }


@contextmanager
def serving(
    package: ModelPackage, folder: ModelFolder, port: int, log: Path | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the model for the block; yield its base URL, once it answers, and its process. Port 0 takes a free one.

    The server's log goes to `log`, or to standard error. Raises `NotInstalled`, or `Transient` if it does not start.
    """
    if not folder.installed:
        raise NotInstalled(package)
    command = [str(folder.python), str(_SERVER), str(folder.model), package.name, str(port)]
    errors = None if log is None else log.open("ab")
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, process_group=0
        )
    finally:
        if errors is not None:
            errors.close()
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise Transient(f"the server of {package.name} ended with code {process.wait()}")
        yield url, process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """End the server by the end of its standard input, which it also sees if this process is killed."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
