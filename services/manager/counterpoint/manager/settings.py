"""What the manager reads from its environment."""

from pydantic import Field

from counterpoint.bus import BusSettings
from counterpoint.manager.bounds import Bounds


class ManagerSettings(BusSettings):
    """The bus, and how long and how often before somebody else decides."""

    outcome_wait_s: float = Field(default=Bounds.outcome_wait_s, gt=0)
    reassess_s: float = Field(default=Bounds.reassess_s, gt=0)
    max_attempts: int = Field(default=Bounds.max_attempts, ge=1)
    max_same_failures: int = Field(default=Bounds.max_same_failures, ge=1)
    max_resumes: int = Field(default=Bounds.max_resumes, ge=0)

    def bounds(self) -> Bounds:
        """The limits of one task."""
        return Bounds(
            outcome_wait_s=self.outcome_wait_s,
            reassess_s=self.reassess_s,
            max_attempts=self.max_attempts,
            max_same_failures=self.max_same_failures,
            max_resumes=self.max_resumes,
        )
