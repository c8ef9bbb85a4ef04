"""Embedded engines (NATS, PostgreSQL, Valkey) and the five services under one supervisor."""
