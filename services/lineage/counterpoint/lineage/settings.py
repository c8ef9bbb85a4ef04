"""Settings of the lineage service."""

from pathlib import Path

from pydantic import Field

from counterpoint.bus import BusSettings
from counterpoint.lineage.incidents.incident import IncidentLimits


class LineageSettings(BusSettings):
    """Listen address and PEM files of the OpenLineage API, and the limits of incidents (docs/incidents.md).

    With `lineage_fd` it serves a listening socket that it inherits.
    """

    lineage_host: str = "127.0.0.1"
    lineage_port: int = 5000
    lineage_fd: int | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    incidents_per_hour: int = Field(default=200, ge=1)
    retry_grace_s: float = Field(default=900.0, ge=0)
    part_grace_s: float = Field(default=30.0, ge=0)

    def limits(self) -> IncidentLimits:
        """Return the limits of incidents in a project."""
        return IncidentLimits(
            incidents_per_hour=self.incidents_per_hour,
            retry_grace_s=self.retry_grace_s,
            part_grace_s=self.part_grace_s,
        )
