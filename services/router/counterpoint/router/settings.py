"""Settings of the router, from the environment."""

from typing import Annotated

from pydantic import Field

from counterpoint.bus import BusSettings


class RouterSettings(BusSettings):
    """Where it listens, and how patient it is with those who ask.

    `poll_s` is how often waits and streams look by themselves; live messages only make them look sooner.
    `ingest_request_bytes` is how much of the documents is handed to memory at once: it must fit into a bus message.
    `tasks_under_way` are begun at once, by turns of projects with `project_weights` (others have 1).
    """

    http_host: str = "127.0.0.1"
    http_port: int = 8484
    principal_cache_s: float = 3.0
    poll_s: float = 2.0
    heartbeat_s: float = 15.0
    wait_limit_s: float = 60.0
    idempotency_s: float = 86_400.0
    documents_limit_bytes: int = 16 * 1024 * 1024
    ingest_request_bytes: int = 512 * 1024
    tasks_under_way: int = Field(32, ge=1)
    project_weights: dict[str, Annotated[int, Field(ge=1)]] = {}
