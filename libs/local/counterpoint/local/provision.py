"""Makes the streams and consumers of the bus, as a process of its own: `python -m counterpoint.local.provision`."""

import asyncio
import os
import ssl

from counterpoint.bus.provision import provision


def main() -> None:
    """Provision the bus that the environment names. Ends with code 1 and a trace when that fails."""
    authority = os.environ.get("COUNTERPOINT_NATS_CA")
    asyncio.run(
        provision(
            os.environ["COUNTERPOINT_NATS_URL"],
            os.environ["COUNTERPOINT_NATS_USER"],
            os.environ["COUNTERPOINT_NATS_PASSWORD"],
            tls=ssl.create_default_context(cafile=authority) if authority else None,
        )
    )


if __name__ == "__main__":
    main()
