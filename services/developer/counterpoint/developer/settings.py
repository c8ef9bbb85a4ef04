"""Settings of the developer, from its environment."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from counterpoint.bus import BusSettings
from counterpoint.client import Gateway


@dataclass(frozen=True)
class Deadlines:
    """Time limits of a question, and of an investigation or a plan, in seconds."""

    answer_s: float = 20.0
    investigation_s: float = 120.0


DEADLINES = Deadlines()


class DeveloperSettings(BusSettings):
    """Settings of the bus and the gateway, and the deadlines of answers and investigations."""

    calibration_file: Path | None = None
    answer_deadline_s: float = Field(default=Deadlines.answer_s, gt=0, le=600)
    investigation_deadline_s: float = Field(default=Deadlines.investigation_s, gt=0, le=1800)

    model: str | None = None
    model_developer: str | None = None
    model_manager: str | None = None
    model_router: str | None = None
    model_judge: str | None = None
    search_url: str | None = None
    gateway_url: str | None = None

    @property
    def deadlines(self) -> Deadlines:
        """The time limits."""
        return Deadlines(self.answer_deadline_s, self.investigation_deadline_s)

    def gateway(self) -> Gateway:
        """Return the gateway, with the developer's own model if it is set."""
        return Gateway(
            self.gateway_url, model=self.model_developer or self.model, searches_web=self.search_url is not None
        )

    def planner(self) -> Gateway:
        """Return the gateway with the model that writes plans, the manager's."""
        return Gateway(self.gateway_url, model=self.model_manager or self.model)

    def chooser(self) -> Gateway:
        """Return the gateway with the model that may choose a lane, the one that is named for it."""
        return Gateway(self.gateway_url, model=self.model_router)

    def reviewer(self) -> Gateway:
        """Return the gateway with the model that reviews results, the one that is named for it."""
        return Gateway(self.gateway_url, model=self.model_judge)
