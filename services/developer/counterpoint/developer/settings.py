"""Settings of the developer, from its environment."""

from pathlib import Path

from pydantic import Field

from counterpoint.bus import BusSettings
from counterpoint.client import Gateway

ANSWER_DEADLINE_S = 20.0


class DeveloperSettings(BusSettings):
    """The bus, what may be asked for outside through the gateway, and how long the answer to a question may take."""

    calibration_file: Path | None = None
    answer_deadline_s: float = Field(default=ANSWER_DEADLINE_S, gt=0, le=600)

    model: str | None = None
    model_developer: str | None = None
    search_url: str | None = None
    gateway_url: str | None = None

    def gateway(self) -> Gateway:
        """The gateway as the developer uses it: its own model where one is named for it."""
        return Gateway(
            self.gateway_url, model=self.model_developer or self.model, searches_web=self.search_url is not None
        )
