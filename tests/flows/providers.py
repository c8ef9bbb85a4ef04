"""Traces of a model provider in a process of a stack."""

import re
from pathlib import Path

_WRITABLE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw")


def has_litellm(pid: int) -> bool:
    """Whether a process has loaded what LiteLLM brings along."""
    return "fastuuid" in Path(f"/proc/{pid}/maps").read_text()


def holds(pid: int, text: str) -> bool:
    """Whether a text is in the writable memory of a process, its environment included."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if area := _WRITABLE.match(line):
                begin, end = (int(number, 16) for number in area.groups())
                memory.seek(begin)
                try:
                    content = memory.read(end - begin)
                except OSError:
                    continue
                if text.encode() in content:
                    return True
    return False
