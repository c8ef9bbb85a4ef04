"""Worker process: run a file with one input, and return what it has written. That is not trusted."""

import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """The exit code of a worker, what it has written, and whether it was ended for taking too long."""

    code: int
    written: bytes
    is_late: bool


def run_worker(worker: Path, *arguments: str, content: bytes, limit_s: float, result_limit_bytes: int) -> WorkerExit:
    """Run a file until it ends, has taken `limit_s`, or has written more than `result_limit_bytes`."""
    # The worker gets no environment: it reads untrusted content, and needs nothing of it.
    with subprocess.Popen(
        [sys.executable, "-I", str(worker), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        try:
            # It has read all that it is given before it writes.
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(content)
            written = process.stdout.read(result_limit_bytes + 1)
            if len(written) > result_limit_bytes:
                process.kill()
            code = process.wait()
            return WorkerExit(code, written, timer.finished.is_set())
        finally:
            timer.cancel()
            process.kill()
