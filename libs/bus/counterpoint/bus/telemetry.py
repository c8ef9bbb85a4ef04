"""Metrics of the bus."""

from prometheus_client import Counter, Gauge

DELIVERIES = Counter("counterpoint_deliveries", "Deliveries by outcome", ["service", "outcome"])
BACKLOG = Gauge(
    "counterpoint_consumer_pending", "Messages that wait for a consumer or its acknowledgement", ["stream", "consumer"]
)
