"""Settings of the lineage service."""

from pydantic import Field

from counterpoint.bus import BusSettings
from counterpoint.lineage.incidents import Limits


class LineageSettings(BusSettings):
    """Where it listens for OpenLineage, and when failures become incidents (row F5)."""

    lineage_host: str = "127.0.0.1"
    lineage_port: int = 5000
    incidents_per_hour: int = Field(default=200, ge=1)
    retry_grace_s: float = Field(default=900.0, ge=0)
    part_grace_s: float = Field(default=30.0, ge=0)

    def limits(self) -> Limits:
        """The limits of one project."""
        return Limits(
            incidents_per_hour=self.incidents_per_hour,
            retry_grace_s=self.retry_grace_s,
            part_grace_s=self.part_grace_s,
        )
