"""Hybrid search over words and vectors."""
