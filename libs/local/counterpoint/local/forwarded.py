"""Settings forwarded from the supervisor's environment to the services, without the prefix `COUNTERPOINT_`.

An allow-list: no other variable of that environment reaches a service. A test compares it with docs/operations.md.
"""

from collections.abc import Mapping
from typing import Literal

COMMON = ("NATS_CA", "NATS_CERT", "NATS_KEY", "HEALTH_HOST", "LOG_LEVEL", "RPC_TIMEOUT_S", "WORKERS", "DRAIN_S")
"""Settings of every service."""

FORWARDED: Mapping[Literal["memory", "router", "manager", "developer", "lineage"], tuple[str, ...]] = {
    "memory": (
        "AUDIT_DIR",
        "MODEL_CACHE_DIR",
        "QDRANT_URL",
        "QDRANT_API_KEY",
        "POSTGRES_POOL",
        "POSTGRES_TIMEOUT_S",
        "LEASE_RETRY_S",
        "COMMIT_QUEUE",
        "DISK_RESERVE_BYTES",
        "SWEEP_AGE_S",
        "CAPABILITY_LIFE_S",
        "RECONCILE_EVERY_S",
        "RETENTION_S",
        "READ_SET_ITEMS",
        "RECALL_SHARE",
        "EMBEDDING_MODEL",
        "EMBEDDING_DIMENSIONS",
        "RERANKER",
        "PROVIDER_CLEARANCE",
        "MODEL",
        "RELATIONS_TOKENS",
    ),
    "router": (
        "PRINCIPAL_CACHE_S",
        "POLL_S",
        "HEARTBEAT_S",
        "WAIT_LIMIT_S",
        "IDEMPOTENCY_S",
        "DOCUMENTS_LIMIT_BYTES",
        "INGEST_REQUEST_BYTES",
        "TASKS_UNDER_WAY",
        "PROJECT_WEIGHTS",
        "MCP_URL",
        "MCP_AUTHORIZATION_SERVERS",
        "MCP_HOSTS",
        "NOTIFY_URL",
        "NOTIFY_SECRET",
        "NOTIFY_PRIVATE",
        "NOTIFY_FILE",
        "NOTIFY_TIMEOUT_S",
        "CONSOLE_URL",
        "HOOKS_FILE",
        "ISSUES_FILE",
        "ISSUES_TIMEOUT_S",
    ),
    "manager": (
        "OUTCOME_WAIT_S",
        "REASSESS_S",
        "MAX_ATTEMPTS",
        "MAX_SAME_FAILURES",
        "MAX_RESUMES",
        "MODEL",
        "MODEL_MANAGER",
        "MODEL_DEVELOPER",
        "MODEL_ROUTER",
        "MODEL_SESSIONS",
        "MODEL_FALLBACKS",
        "REPLAY_MODELS",
        "EMBEDDING_MODEL",
        "EMBEDDING_MODELS",
        "SEARCH_URL",
        "GATEWAY_CALLS",
        "GATEWAY_CALL_S",
        "GATEWAY_TRIES",
        "GATEWAY_MAX_TOKENS",
        "RELATIONS_TOKENS",
    ),
    "developer": (
        "CALIBRATION_FILE",
        "ANSWER_DEADLINE_S",
        "INVESTIGATION_DEADLINE_S",
        "MODEL",
        "MODEL_DEVELOPER",
        "MODEL_MANAGER",
        "MODEL_ROUTER",
        "SEARCH_URL",
    ),
    "lineage": ("INCIDENTS_PER_HOUR", "RETRY_GRACE_S", "PART_GRACE_S"),
}
"""Settings of one service."""
