"""The client of the memory service: query, commit, ingest; and how a step says what it reasoned."""

from counterpoint.recall.memory import Memory, Transport, record
from counterpoint.recall.steps import act, decide, delete, put, send

__all__ = ["Memory", "Transport", "act", "decide", "delete", "put", "record", "send"]
