"""How long the manager waits and how often it tries before somebody else has to decide."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """The limits of one task (rows A3, A6, E2).

    `outcome_wait_s`: how long a proposal waits for its outcome before the task completes as proposed.
    `reassess_s`: confidence is recomputed at most once in this time, however much is ingested.
    `max_attempts`: the attempt whose failure goes to a human. `max_same_failures`: how often one error signature may
    fail before the calling LLM is asked. `max_resumes`: how often new knowledge alone sets a task to work again.
    """

    outcome_wait_s: float = 24 * 3600
    reassess_s: float = 5
    max_attempts: int = 5
    max_same_failures: int = 2
    max_resumes: int = 3
