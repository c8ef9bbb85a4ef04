"""Pages of invented manuals, and the passages that a search finds in them."""

from agents.developer_memory import START

from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.excerpts.relevance import Hit, hits
from counterpoint.memory.ingest.chunk import chunk, detect
from counterpoint.proto.memory import Item

CURVE = load_calibration().answer
SLOTS = """---
title: slots
---

# Replication slots

A slot keeps the log that a replica has not read yet.

## When a slot grows

Never drop the slot while its replica is down: the replica would have to be copied anew.

1. Look which replica is behind with `slotctl list`.
2. Start that replica.
3. If it cannot be started, copy it anew, and only then drop the slot.

## Settings

| Setting | Default | Meaning |
| --- | --- | --- |
| `slot.keep_gb` | 40 | Most that a slot keeps |
| `slot.idle_h` | 72 | Idle slots are dropped after so many hours |

## Contacts

| System | Team | Reached |
| --- | --- | --- |
| Orders lake | Harbour | harbour@lake.example |
| Billing | Till | till@lake.example |
"""
EXITS = """Exit codes
==========

Storage
-------

Exit code 74 of the loader means that the object is not in the bucket.

1. Look it up with ``loadctl show KEY``.
2. Ask the producer to write it again.

.. warning::

   Do not retry by hand: the loader would skip the day.

Memory
------

Exit code 137 means that the kernel ended the loader.

* raise ``memory_mb``
* or split the input
"""


def hits_of(query: str, *texts: tuple[str, str], cosine: float = 0.6) -> tuple[Hit, ...]:
    """All passages of documents as a search finds them."""
    items = []
    for source, text in texts:
        pieces = chunk(text, detect(source, text))
        for n, piece in enumerate(pieces.chunks):
            body = {"document_id": source, "source": source, "title": source, "text": piece.text, "start": piece.start,
                    "context": piece.context, "type": pieces.type}  # fmt: skip
            items.append(
                Item(store="chunks", id=f"{source}-{n:05d}", project="shop", version=1, body=body, author="memory",
                     label=1, integrity=2, seq=1, at=START, score=0.5,
                     scores={"cosine": cosine, "lexical_z": 2.0, "cosine_z": 2.0, "coverage": 0.5})
            )  # fmt: skip
    return hits(query, items, CURVE)


def answered(question: str, *texts: tuple[str, str]) -> str:
    return QuestionHits(question, hits_of(question, *(texts or (("slots.md", SLOTS),)))).quoted(CURVE.threshold).text
