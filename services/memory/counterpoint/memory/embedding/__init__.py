"""Embedding models: the built-in one, one of a folder, one behind the gateway."""
