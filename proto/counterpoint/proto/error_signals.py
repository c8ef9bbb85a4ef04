"""Signals that ended a process.

Shells and containers report signal n as exit code 128 + n, Python's subprocess as -n or by its name, systemd as
`n/NAME`.
"""

import re

_NUMBERS = {"ill": 4, "abrt": 6, "bus": 7, "fpe": 8, "kill": 9, "segv": 11, "term": 15}
"""Signals that end a process from outside or by a crash. Programs use other codes above 128 in a sense of their own,
such as 129 and 130."""
_PHRASES = {"oomkilled": 9, "killed": 9, "segmentation fault": 11, "aborted": 6, "terminated": 15}
_NAMES = "|".join(_NUMBERS)
_CODES = "|".join(str(128 + number) for number in _NUMBERS.values())
_EXIT = (
    r"(?<![^\W_])(?:exit(?:ed)?(?:[\s_-](?:with|code|status|value)){0,3}|exitcode|return[\s_-]?code|rc)"
    r"['\"]?\s?[:=\[(]?\s{0,8}['\"]?"
)
_EXITED = re.compile(
    rf"({_EXIT})(?:-({'|'.join(map(str, _NUMBERS.values()))})|(?:negsignal\.|signals\.)?sig({_NAMES}))(?!\w|\.\d)", re.I
)
_EXIT_CODE = re.compile(rf"{_EXIT}({_CODES})(?!\w|\.\d)", re.I)
_NUMBERED = re.compile(rf"(?<![^\W_])signal\s?[:=(]?\s?({'|'.join(map(str, _NUMBERS.values()))})(?!\w|\.\d)", re.I)
_NAMED = re.compile(rf"(?<![^\W_])sig({_NAMES})\b|\bstatus=\d{{1,2}}/({_NAMES})\b", re.I)
_SAID = re.compile(r"\b(OOMKilled|segmentation fault)\b|\bsignal: (killed|aborted|terminated)\b", re.I)
_NOTATION = re.compile(
    rf"(?:negsignal|signals)?\.?\bsig(?:{_NAMES})\b(?::\s?\d+)?|\bstatus=\d{{1,2}}/(?:{_NAMES})\b"
    r"|\boomkilled\b|\bsegmentation fault(?: \(core dumped\))?"
    r"|\b(?:killed|died|received|got|last|reason|returncode|exitcode|rc)\b",
    re.I,
)


def as_exit_codes(message: str) -> str:
    """Return a message with the signals after words such as `return code` as 128 + n: `return code -9` and `return code
    Negsignal.SIGKILL` as `return code 137`."""

    def code(match: re.Match[str]) -> str:
        return f"{match[1]}{128 + (int(match[2]) if match[2] else _NUMBERS[match[3].casefold()])}"

    return _EXITED.sub(code, message)


def signals_of(message: str) -> tuple[int, ...]:
    """Return the numbers of the signals in a message, in whichever notation."""
    text = as_exit_codes(message)
    found = [int(match[1]) - 128 for match in _EXIT_CODE.finditer(text)]
    found += [int(match[1]) for match in _NUMBERED.finditer(text)]
    found += [_NUMBERS[(match[1] or match[2]).casefold()] for match in _NAMED.finditer(text)]
    found += [_PHRASES[(match[1] or match[2]).casefold()] for match in _SAID.finditer(text)]
    return tuple(dict.fromkeys(found))


def without_signals(message: str) -> str:
    """Return a message without the names of signals and the words around them."""
    return _NOTATION.sub(" ", message)
