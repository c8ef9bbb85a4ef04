"""Retrieval: chunks, their vectors, and the search over words and meaning (rows A10, B8, C1, C2)."""
