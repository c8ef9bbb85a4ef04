"""Answering a question in five steps, each of which may send it back (rows C3-C7)."""
