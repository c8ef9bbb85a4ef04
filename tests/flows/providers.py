"""Traces of a model provider in a process of a stack."""

from pathlib import Path


def has_litellm(pid: int) -> bool:
    """Whether a process has loaded what LiteLLM brings along."""
    return "fastuuid" in Path(f"/proc/{pid}/maps").read_text()


def environment(pid: int) -> str:
    """Environment of a process."""
    return Path(f"/proc/{pid}/environ").read_text()
