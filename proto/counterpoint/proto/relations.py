"""The fixed vocabulary of relations between entities."""

from typing import Literal

RelationKind = Literal[
    "owns", "produces", "consumes", "runs_on", "depends_on", "documents", "mentions", "fixed_by"
]  # fmt: skip
"""Kind of a relation, in reading order: `source` `kind` `target`."""
