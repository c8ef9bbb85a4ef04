"""Clients of the memory service (query, commit, command, ingest) and of the gateway, and the parts of a commit."""

from counterpoint.client.gateway import Completion, Embeddings, Gateway, WebResult, WebResults
from counterpoint.client.memory import Memory, Transport
from counterpoint.client.readable import RecordVersion, readable, record, records
from counterpoint.client.retry import retry_on_conflict
from counterpoint.client.steps import act, decide, delete, put, send

__all__ = [
    "Completion",
    "Embeddings",
    "Gateway",
    "Memory",
    "RecordVersion",
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
    "retry_on_conflict",
    "send",
]
