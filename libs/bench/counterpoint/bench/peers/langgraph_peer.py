"""LangGraph's PostgresStore with its pgvector index. A tenant is a namespace.

Run by the driver in the peers' own environment: `python langgraph_peer.py POSTGRES_URL WORK_FILE`. JSON on standard
output.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from langgraph.store.postgres import PostgresStore
from work import UPDATES, K, PeerWorkload, adds_per_second, measure_search


def main(url: str, file: Path) -> dict[str, Any]:
    """Run the workload and return the figures."""
    work = PeerWorkload.read(file)

    def embed(texts: list[str]) -> list[list[float]]:
        return [work.vectors[text] for text in texts]

    numbers = count()
    index: Any = {"dims": 384, "embed": embed, "fields": ["text"], "distance_type": "cosine"}
    with PostgresStore.from_conn_string(url, index=index, pool_config={"min_size": 8, "max_size": 16}) as store:
        store.setup()

        def search(tenant: str, text: str) -> list[str]:
            return [each.value["text"] for each in store.search((tenant,), query=text, limit=K)]

        report: dict[str, Any] = {"adds_a_second": adds_per_second(
            work, lambda tenant, text: store.put((tenant,), f"item-{next(numbers)}", {"text": text})
        )}  # fmt: skip
        report |= measure_search(work, search)

        store.put(("tenant-0",), "one", {"n": 0}, index=False)

        def increment(_: int) -> None:
            known = store.get(("tenant-0",), "one")
            assert known is not None
            store.put(("tenant-0",), "one", {"n": known.value["n"] + 1}, index=False)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(increment, range(UPDATES)))
        last = store.get(("tenant-0",), "one")
        assert last is not None
        report["updates_lost"] = UPDATES - last.value["n"]
        # The API takes no identity: any caller that names the namespace reads it.
        report["foreign_read_by_id"] = store.get(("tenant-0",), "one") is not None
    return report


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
