"""Texts from outside that records can store."""


def storable(text: str) -> str:
    """Return an external text without characters that records cannot store."""
    return text.encode(errors="replace").decode().replace("\0", "")
