"""mem0 on PostgreSQL with pgvector, without a model: `infer=False` stores each text unchanged.

Run by the driver in the peers' own environment: `python mem0_peer.py POSTGRES_URL WORK_FILE`. JSON on standard output.
"""

import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"
os.environ["MEM0_DIR"] = tempfile.mkdtemp(prefix="mem0-")
os.environ.setdefault("OPENAI_API_KEY", "none is asked")

from mem0 import Memory
from work import UPDATES, K, PeerWorkload, adds_per_second, measure_search


def main(url: str, file: Path) -> dict[str, Any]:
    """Run the workload and return the figures."""
    work = PeerWorkload.read(file)
    store = {"connection_string": url, "embedding_model_dims": 384, "hnsw": True, "collection_name": "peers",
             "maxconn": 16}  # fmt: skip
    memory = Memory.from_config({
        "vector_store": {"provider": "pgvector", "config": store},
        "history_db_path": os.path.join(os.environ["MEM0_DIR"], "history.db"),
    })  # fmt: skip

    class WorkloadEmbedder:
        """Embedding model that returns the vectors of the workload; any other text has the first one."""

        config = memory.embedding_model.config

        def embed(self, text: str, memory_action: str | None = None) -> list[float]:
            vector: list[float] = work.vectors.get(text, next(iter(work.vectors.values())))
            return vector

        def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
            return [self.embed(text) for text in texts]

    memory.embedding_model = WorkloadEmbedder()
    report: dict[str, Any] = {"adds_a_second": adds_per_second(
        work, lambda tenant, text: memory.add(text, user_id=tenant, infer=False)
    )}  # fmt: skip

    def search(tenant: str, text: str) -> list[str]:
        found = memory.search(text, filters={"user_id": tenant}, top_k=K, threshold=0.0)
        return [each["memory"] for each in found["results"]]

    report |= measure_search(work, search)

    (one,) = memory.add("0", user_id="tenant-0", infer=False)["results"]

    def increment(_: int) -> None:
        count = int(memory.get(one["id"])["memory"])
        memory.update(one["id"], data=str(count + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(increment, range(UPDATES)))
    report["updates_lost"] = UPDATES - int(memory.get(one["id"])["memory"])
    # The API takes no identity: any caller that knows an id reads it.
    report["foreign_read_by_id"] = memory.get(one["id"]) is not None
    return report


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
