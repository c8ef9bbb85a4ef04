"""Settings of the developer, from its environment."""

from pathlib import Path

from pydantic import Field

from counterpoint.bus import BusSettings
from counterpoint.client import Gateway

ANSWER_DEADLINE_S = 20.0


class DeveloperSettings(BusSettings):
    """Settings of the bus and the gateway, and the deadline of answers."""

    calibration_file: Path | None = None
    answer_deadline_s: float = Field(default=ANSWER_DEADLINE_S, gt=0, le=600)

    model: str | None = None
    model_developer: str | None = None
    search_url: str | None = None
    gateway_url: str | None = None

    def gateway(self) -> Gateway:
        """Return the gateway, with the developer's own model if it is set."""
        return Gateway(
            self.gateway_url, model=self.model_developer or self.model, searches_web=self.search_url is not None
        )
