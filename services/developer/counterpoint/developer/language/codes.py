"""Codes: exit codes, exceptions, SQLSTATEs and alerts."""

import re

_CODE = re.compile(
    r"\b[A-Za-z]\w*(?:Error|Exception|Failure|Fault|Warning|Timeout|Killed|BackOff)\b"
    r"|\b[A-Z][A-Z0-9]*[-_]?\d{2,}\b|\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b"
    r"|\bE[A-Z]{3,}\b"
    r"|\b(?:exit(?:ed)?(?: with)?(?: exit)?[ -]?(?:code|status)|code|status|errno|signal|SQLSTATE)"
    r"[ :=]*(?:is )?[0-9A-Z]{1,6}\b"
)
_GENERIC = frozenset(("error", "exception", "failure", "fault", "warning", "timeout", "runtimeerror", "valueerror",
                      "keyerror", "typeerror", "exit code 1", "code 1", "status 1", "airflowexception"))  # fmt: skip
_SPACE = re.compile(r"[\s:=]+")
_EXIT = re.compile(r"exit(?:ed)?(?: with)?(?: exit)?[ -]?(?:code|status)", re.IGNORECASE)


def codes_of(failure: str) -> tuple[str, ...]:
    """Return the specific codes, exceptions and alerts in a failure, normalised."""
    found = (normalise(code[0]) for code in _CODE.finditer(failure))
    return tuple(dict.fromkeys(code for code in found if code not in _GENERIC))


def normalise(text: str) -> str:
    """Normalise a text like the codes."""
    return _SPACE.sub(" ", _EXIT.sub("exit code", text)).casefold()


def first_code_in(codes: tuple[str, ...], text: str) -> str | None:
    """Return the first of the codes that is a whole word of the text."""
    normalised = normalise(text)
    return next((code for code in codes if re.search(rf"(?<!\w){re.escape(code)}(?!\w)", normalised)), None)
