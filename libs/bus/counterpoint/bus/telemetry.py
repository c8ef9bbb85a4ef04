"""Metrics of the bus."""

from prometheus_client import Counter, Gauge

DELIVERIES = Counter("counterpoint_deliveries", "Deliveries by how they ended", ["service", "outcome"])
BACKLOG = Gauge(
    "counterpoint_consumer_pending", "Messages that wait for a consumer or its acks", ["stream", "consumer"]
)
