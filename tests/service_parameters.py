"""The inputs of the environments of services, without a stack that has them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from counterpoint.local.credentials import Credentials
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.service import NATS_USERS, ServiceParameters


def service_parameters(inherited: Mapping[str, str], **more: Any) -> ServiceParameters:
    """Return parameters with credentials of their own."""
    credentials = Credentials.make().with_nats_users(NATS_USERS)
    return ServiceParameters(
        data_dir=Path("/data"),
        nats_url="nats://127.0.0.1:1",
        postgres=PostgresUrls.of("postgresql://postgres:p@127.0.0.1:2/postgres", credentials.postgres),
        valkey_url="redis://127.0.0.1:3",
        http_port=4,
        lineage_port=5,
        gateway_port=6,
        credentials=credentials,
        inherited=inherited,
        **more,
    )
