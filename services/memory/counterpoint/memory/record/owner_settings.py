"""Settings of the jobs that run as the owner of the database."""

from pydantic import SecretStr

from counterpoint.bus.settings import ProcessSettings


class OwnerSettings(ProcessSettings):
    """The database as user `counterpoint_owner`, and the id of the installation that it must carry, if any."""

    postgres_owner_url: SecretStr
    installation: str | None = None

    @property
    def url(self) -> str:
        """The URL of the database, with the password."""
        return self.postgres_owner_url.get_secret_value()
