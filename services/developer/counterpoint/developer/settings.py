"""What the developer reads from its environment."""

from counterpoint.bus import BusSettings
from counterpoint.recall import Gateway


class DeveloperSettings(BusSettings):
    """The bus, and what may be asked for outside through the gateway; the developer has no limits of its own."""

    model: str | None = None
    model_developer: str | None = None
    search_url: str | None = None
    gateway_url: str | None = None

    def gateway(self) -> Gateway:
        """The gateway as the developer uses it: its own model where one is named for it."""
        return Gateway(
            self.gateway_url, model=self.model_developer or self.model, searches_web=self.search_url is not None
        )
