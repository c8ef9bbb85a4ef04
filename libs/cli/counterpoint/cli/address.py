"""Where Counterpoint is: said by options, else by the environment, else by the nearest data folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from counterpoint.cli.errors import Misused, NotReachable

FOLDER = ".counterpoint"


@dataclass(frozen=True)
class Address:
    """The base URL of the HTTP API and the bearer token to ask with."""

    url: str
    token: str


@dataclass(frozen=True)
class Place:
    """What the options said, the environment, and the folder a command was given in."""

    url: str | None
    token: str | None
    data_dir: Path | None
    environ: Mapping[str, str]
    cwd: Path

    def address(self) -> Address:
        """The first of: `--url`, `--data-dir`, COUNTERPOINT_URL, COUNTERPOINT_DATA_DIR, `.counterpoint` upwards.

        Raises Misused when options contradict each other or a token is missing, NotReachable when nothing runs there.
        """
        if self.url and self.data_dir:
            raise Misused("give --url or --data-dir, not both")
        if self.data_dir:
            return self._with_token(_left_in(self.folder()))
        url = self.url or self.environ.get("COUNTERPOINT_URL")
        if url:
            token = self.token or self.environ.get("COUNTERPOINT_TOKEN")
            if not token:
                raise Misused("a URL needs a token: --token or COUNTERPOINT_TOKEN")
            return Address(url.rstrip("/"), token)
        return self._with_token(_left_in(self.folder()))

    def folder(self) -> Path:
        """The data folder: `--data-dir`, COUNTERPOINT_DATA_DIR, the nearest `.counterpoint` upwards, else here.

        Raises Misused for what is there and no folder.
        """
        if named := self.data_dir or self.environ.get("COUNTERPOINT_DATA_DIR"):
            folder = Path(named)
            if folder.exists() and not folder.is_dir():
                raise Misused(f"{folder} is no folder")
            return folder
        nearest = (above / FOLDER for above in (self.cwd, *self.cwd.parents))
        return next((folder for folder in nearest if folder.is_dir()), self.cwd / FOLDER)

    def _with_token(self, found: Address) -> Address:
        return Address(found.url, self.token or found.token)


def _left_in(folder: Path) -> Address:
    from counterpoint.local.endpoints import read_endpoints
    from counterpoint.proto.errors import Transient

    try:
        endpoints = read_endpoints(folder)
    except Transient as nothing:
        raise NotReachable(f"{nothing}; start it with `counterpoint up --data-dir {folder}`") from None
    return Address(endpoints.http, endpoints.token)
