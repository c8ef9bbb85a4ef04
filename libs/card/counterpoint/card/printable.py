"""Texts of others on a screen: nothing in them steers a terminal, and none is read in another order than it has."""

import re

_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ORDER = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Characters that change the direction of the text around them, with which a command can be shown as another one."""


def printable(text: str) -> str:
    """Return a text without control characters other than tabs and line feeds; those of its direction are escaped."""
    return _ORDER.sub(lambda found: f"\\u{ord(found[0]):04x}", _CONTROLS.sub("", text))
