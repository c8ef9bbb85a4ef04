"""What a process of a house has of a provider of models."""

from pathlib import Path


def has_litellm(pid: int) -> bool:
    """Whether a process has loaded what LiteLLM brings along."""
    return "fastuuid" in Path(f"/proc/{pid}/maps").read_text()


def environment(pid: int) -> str:
    """What a process was given."""
    return Path(f"/proc/{pid}/environ").read_text()
