"""Settings of the router, from the environment."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, StringConstraints

from counterpoint.bus import BusSettings

PageUrl = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9.:_/~%\[\]-]+$", max_length=500)]
"""Address of a page, without the characters that end a link in a message, a query and a fragment."""


class RouterSettings(BusSettings):
    """Addresses, intervals and limits of the router.

    `poll_s` is the poll interval of waits and streams; live messages wake them earlier. `ingest_request_bytes` limits
    the documents in one request to memory, which must fit into a bus message. At most `tasks_under_way` tasks are
    started at once; projects take turns by `project_weights` (default 1). `tls_cert` and `tls_key` are PEM files.
    With `http_fd` it serves a listening socket that it inherits.

    `mcp_url` is the address of `/mcp` that clients use, for its OAuth metadata, which names
    `mcp_authorization_servers`. `mcp_hosts` are the host names besides the local ones that `/mcp` answers to.

    Events of tasks are posted to `notify_url`, signed by `notify_secret`; `notify_private` allows it a private address.
    `notify_file` names more receivers. A call to one has `notify_timeout_s`. Messages link to `console_url`, the
    address of the console that people use. `hooks_file` names sources of webhooks.
    `issues_file` names trackers, whose issues are kept in step with tasks; a call to a forge has `issues_timeout_s`.
    Replays with another model call the manager's gateway at `gateway_url`.
    """

    http_host: str = "127.0.0.1"
    http_port: int = 8484
    http_fd: int | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    principal_cache_s: float = 3.0
    poll_s: float = 2.0
    heartbeat_s: float = 15.0
    wait_limit_s: float = 60.0
    idempotency_s: float = 86_400.0
    documents_limit_bytes: int = 16 * 1024 * 1024
    ingest_request_bytes: int = 512 * 1024
    tasks_under_way: int = Field(32, ge=1)
    project_weights: dict[str, Annotated[int, Field(ge=1)]] = {}
    mcp_url: str = "http://127.0.0.1:8484/mcp"
    mcp_authorization_servers: tuple[str, ...] = ()
    mcp_hosts: tuple[str, ...] = ()
    notify_url: SecretStr | None = None
    notify_secret: SecretStr | None = None
    notify_private: bool = False
    notify_file: Path | None = None
    notify_timeout_s: float = Field(10.0, gt=0, le=60)
    console_url: PageUrl | None = None
    hooks_file: Path | None = None
    issues_file: Path | None = None
    issues_timeout_s: float = Field(10.0, gt=0, le=60)
    gateway_url: str | None = None
