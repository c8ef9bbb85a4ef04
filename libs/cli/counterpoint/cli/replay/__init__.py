"""Replay of tasks: fetch their steps, run the decisions again, compare, report (docs/replay.md)."""
