"""A DAG whose fetch fails with the error that ORDERS_BREAK says."""

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import Asset, dag, task

raw = Asset("file:///lake/raw/orders.csv")
clean = Asset("file:///lake/clean/orders.parquet")
ARGS = {"owner": "team-ingest", "retries": 1, "retry_delay": timedelta(seconds=0)}


@dag(
    dag_id="orders_ingest", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None, catchup=False, default_args=ARGS
)
def orders_ingest() -> None:
    """Fetch orders, then clean them."""

    @task(outlets=[raw])
    def fetch_orders() -> int:
        if error := os.environ.get("ORDERS_BREAK"):
            raise ConnectionError(error)
        return 1204

    @task(inlets=[raw], outlets=[clean])
    def clean_orders(rows: int) -> int:
        return rows

    clean_orders(fetch_orders())


orders_ingest()
