"""Texts from outside: what records can store of them, and the JSON object in a reply of a model."""


def storable(text: str) -> str:
    """Return an external text without characters that records cannot store."""
    return text.encode(errors="replace").decode().replace("\0", "")


def object_in(reply: str) -> str:
    """Return the text from the first opening brace of a reply to its last closing one; the empty text without both."""
    return reply[reply.find("{") : reply.rfind("}") + 1] if "{" in reply else ""
