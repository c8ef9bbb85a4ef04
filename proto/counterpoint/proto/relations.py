"""The fixed vocabulary of relations between known things (row B1)."""

from typing import Literal

RelationKind = Literal[
    "owns", "produces", "consumes", "runs_on", "depends_on", "documents", "mentions", "fixed_by"
]  # fmt: skip
"""Kind of a relation: `source` `kind` `target`, as a sentence reads."""
