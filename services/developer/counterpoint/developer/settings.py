"""What the developer reads from its environment."""

from counterpoint.bus import BusSettings


class DeveloperSettings(BusSettings):
    """The bus; the developer has no limits of its own."""
