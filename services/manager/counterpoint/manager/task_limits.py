"""Limits of time and attempts of one task."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskLimits:
    """Limits of one task (docs/workflow.md).

    `outcome_wait_s`: time that a proposal waits for its outcome before the task completes as proposed.
    `reassess_s`: shortest time between two recomputations of confidence.
    `max_attempts`: number of the attempt whose failure escalates to a human. `max_same_failures`: failures with one
    error signature before the calling LLM is asked. `max_resumes`: resumptions by new knowledge alone.
    """

    outcome_wait_s: float = 24 * 3600
    reassess_s: float = 5
    max_attempts: int = 5
    max_same_failures: int = 2
    max_resumes: int = 3
