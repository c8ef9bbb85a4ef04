"""Queries: executor, answer cache, as-of reads."""
