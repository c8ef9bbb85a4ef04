"""Embedded engines (NATS, PostgreSQL, Valkey) and the five services under one supervisor."""

import counterpoint.bus  # noqa: F401  - it imports structlog, without what we do not use of it
