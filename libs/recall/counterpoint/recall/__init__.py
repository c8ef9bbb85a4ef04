"""The client of the memory service: query, commit, ingest; that of the gateway; how a step says what it reasoned."""

from counterpoint.recall.gateway import Embedded, Gateway, Generated, WebResult, WebResults
from counterpoint.recall.memory import Memory, Transport
from counterpoint.recall.readable import readable, record, records
from counterpoint.recall.steps import act, decide, delete, put, send

__all__ = [
    "Embedded",
    "Gateway",
    "Generated",
    "Memory",
    "Transport",
    "WebResult",
    "WebResults",
    "act",
    "decide",
    "delete",
    "put",
    "readable",
    "record",
    "records",
    "send",
]
