"""The address of the API: from options, the environment, or the nearest data folder."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from counterpoint.cli.errors import NotReachable, UsageError

if TYPE_CHECKING:
    import ssl

    from counterpoint.local.endpoints import Endpoints

FOLDER = ".counterpoint"


@dataclass(frozen=True)
class Address:
    """Base URL of the HTTP API, and a bearer token.

    `ca` is a file of trusted certificates; if it is `pinned`, the server may present only the first one, for any name.
    """

    url: str
    token: str
    ca: Path | None = None
    pinned: bool = False

    def verification(self) -> "ssl.SSLContext | bool":
        """Return the check of the server's certificate, for httpx."""
        if self.ca is None:
            return True
        import ssl

        if not self.pinned:
            return ssl.create_default_context(cafile=self.ca)
        first, end, _ = self.ca.read_text().partition(ssl.PEM_FOOTER)
        context = ssl.create_default_context(cadata=first + end)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context


@dataclass(frozen=True)
class AddressSource:
    """Options, environment and working directory of a command."""

    url: str | None
    token: str | None
    data_dir: Path | None
    environ: Mapping[str, str]
    cwd: Path

    def address(self) -> Address:
        """Return the first of: `--url`, `--data-dir`, COUNTERPOINT_URL, COUNTERPOINT_DATA_DIR, `.counterpoint` upwards.

        Raises UsageError for contradicting options or a missing token, NotReachable when nothing runs there.
        """
        if self.url and self.data_dir:
            raise UsageError("give --url or --data-dir, not both")
        if self.data_dir:
            return self._with_token(_read_address(self.folder()))
        url = self.url or self.environ.get("COUNTERPOINT_URL")
        if url:
            if not url.lower().startswith(("http://", "https://")):
                raise UsageError(f"a URL begins with http:// or https://, not {url}")
            token = self.token or self.environ.get("COUNTERPOINT_TOKEN")
            if not token:
                raise UsageError("a URL needs a token: --token or COUNTERPOINT_TOKEN")
            ca = self.environ.get("COUNTERPOINT_CA")
            return Address(url.rstrip("/"), token, Path(ca) if ca else None)
        return self._with_token(_read_address(self.folder()))

    def folder(self) -> Path:
        """Return the data folder: `--data-dir`, COUNTERPOINT_DATA_DIR, the nearest `.counterpoint` upwards, else here.

        Raises UsageError for a path that is not a folder.
        """
        if chosen := self.data_dir or self.environ.get("COUNTERPOINT_DATA_DIR"):
            folder = Path(chosen)
            if folder.exists() and not folder.is_dir():
                raise UsageError(f"{folder} is not a folder")
            return folder
        nearest = (above / FOLDER for above in (self.cwd, *self.cwd.parents))
        return next((folder for folder in nearest if folder.is_dir()), self.cwd / FOLDER)

    def _with_token(self, address: Address) -> Address:
        return replace(address, token=self.token or address.token)


def _read_address(folder: Path) -> Address:
    from counterpoint.local.endpoints import read_endpoints
    from counterpoint.proto.errors import Transient

    try:
        endpoints = read_endpoints(folder)
    except Transient as error:
        raise NotReachable(f"{error}; start it with `counterpoint up --data-dir {folder}`") from None
    return address_of(endpoints)


def address_of(endpoints: "Endpoints") -> Address:
    """Return the address of a stack on this machine. Its certificate does not name 127.0.0.1, so it is pinned."""
    ca = Path(endpoints.certificate) if endpoints.certificate else None
    return Address(endpoints.http, endpoints.token, ca, pinned=ca is not None)
