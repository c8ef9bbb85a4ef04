"""A house whose PostgreSQL and Redis speak TLS only: the URLs verify the servers, and others are refused."""

import json
import shutil
from pathlib import Path

import pytest
from bus.small_house import eventually
from deploy.black_box import works
from deploy.certificates import certificates
from deploy.external import Configure, OtherPostgres
from deploy.external_engines import prepare, refused, run
from deploy.tls_engines import PGBOUNCER, REDIS, answers_in_clear, pgbouncer, redis_with_tls

from counterpoint.local.credentials import Credentials
from counterpoint.local.stack import Stack
from counterpoint.memory.cache.valkey import Valkey

pytestmark = pytest.mark.skipif(
    not (PGBOUNCER and REDIS and shutil.which("openssl")), reason="needs pgbouncer, redis-server and openssl"
)


@pytest.mark.slow
async def test_the_house_runs_on_servers_that_speak_tls_only(
    postgres: OtherPostgres,
    credentials: Credentials,
    configure: Configure,
    tmp_path: Path,
) -> None:
    prepare(postgres, credentials)
    tls, other = certificates(tmp_path / "tls", "server"), certificates(tmp_path / "other", "server")
    async with (
        pgbouncer(postgres.port, credentials.postgres, tls) as database,
        redis_with_tls(tmp_path / "redis", "secret", tls) as cache,
    ):
        assert not (await answers_in_clear(cache, b"PING\r\n")).startswith((b"+", b"-NOAUTH"))
        url = f"postgresql://localhost:{database}?sslmode=verify-full&sslrootcert="
        redis = f"rediss://:secret@localhost:{cache}/0?ssl_ca_certs="
        configure("COUNTERPOINT_POSTGRES_URL", f"{url}{other.ca}")
        configure("COUNTERPOINT_VALKEY_URL", f"{redis}{other.ca}")
        problems = await refused(tmp_path / "data")
        assert "certificate" in problems["postgres"].lower()
        assert "certificate" in problems["valkey"].lower()
        configure("COUNTERPOINT_POSTGRES_URL", f"{url}{tls.ca}")
        configure("COUNTERPOINT_VALKEY_URL", f"{redis}{tls.ca}")
        stack = Stack(tmp_path / "data", http_port=0)
        await stack.start()
        try:
            assert set(stack.endpoints.engines) == {"nats"}
            await works(stack)
            checked = await run("doctor", "--json", "--data-dir", tmp_path / "data")
            levels = {check["check"]: check["level"] for check in json.loads(checked.stdout)["checks"]}
            assert levels["valkey"] == levels["postgres"] == "ok", checked.stdout
        finally:
            await stack.stop()
        entries = Valkey(f"{redis}{tls.ca}", b"key")

        async def kept() -> bool:
            entries.put(b"name", b"value")
            return await entries.get(b"name") == b"value"

        await eventually(kept)
        await entries.close()
        strangers = Valkey(f"{redis}{other.ca}", b"key")
        assert await strangers.get(b"name") is None
        await strangers.close()
