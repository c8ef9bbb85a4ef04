"""A stub service that SIGKILLs itself at a named await (see `house`): `stub_process.py NAME ORDERS`."""

import asyncio
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from chaos.house import AWAITS, Orders, patch

from counterpoint.bench.stub_services import stub_service
from counterpoint.bus import BusSettings


def main(name: str, orders: str) -> None:
    """Patch the awaits of the service, then run it."""
    given = Orders(Path(orders))
    for point in AWAITS.values():
        if point.service == name:
            patch(point, given)
    asyncio.run(stub_service(name, BusSettings()).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
