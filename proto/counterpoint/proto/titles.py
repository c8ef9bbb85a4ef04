"""The title of a task: one line of at most `TITLE_CHARS` characters."""

import re
from collections.abc import Iterator
from itertools import takewhile

from counterpoint.proto.signature import headline, text_of_result

TITLE_CHARS = 80
_JOB_CHARS = 40
_ENOUGH_CHARS = 60
"""Minimum length of a title shortened by whole clauses; below it the title is cut after a word."""
_TELLING_CHARS = 15
"""Minimum length of a message that stands without the clause before it, which only says that the job failed."""
_CUT = " …"
_WRAPPING = 3
"""Minimum number of messages around the last one, for that one to be the cause."""
_LOG_LINES = 3
"""Maximum number of lines of a message that is no log."""
_CAUSE = re.compile(r"[^\W\d_][^\s={}\[\]:]*+ [^={}\[\]:]*+(?<!\b(?:is|of|in|at|to|by|on))(?<!\bafter|\bsince|\buntil)")
_NOISE = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"
    r"|(?<!code[ =])(?<!error[ =])(?<!status[ =])(?<!fehler[ =])\b0x(?![8c][0-9a-f]{7}\b|0000[0-9a-f]{4}\b)[0-9a-f]+\b"
    r"|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z| UTC|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)
_EMPTY = re.compile(r"\(\s*\)|\[\s*\]|\{\s*\}|'\s*'|\"\s*\"|(?<![\w-])[\w-]++[=#](?=[\s,;]|$)")
_PATH = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:)?(?:\\?[/\\][\w.@+-]+)(?:[/\\][\w.@+-]+)+[/\\]?")
_QUERY = re.compile(r"(\bhttps?://[^\s?#]++)(?:[?#]\S*)?")
_ASIDE = re.compile(r"(?<!\s)\s*+(?:\([^()]*\)|\[[^\[\]]*\])")
_CLAUSE = re.compile(r"(?:[:;,.] |\s[-–—] )")
_BESIDE = re.compile(r"(?:LINE \d+|DETAIL|HINT|CONTEXT|QUERY|STATEMENT|WHERE): |compiled code at ")
"""Lines that a database or dbt writes below its message."""
_COLONS = re.compile(r":(?:\s*+:)+(\s)?")
_NAME = re.compile(r"(?:^|[:;,.] |\s[-–—] )\S*[A-Z\d]\S*$")
"""A name at the end of a text after punctuation: the next clause belongs to it."""


def title_of(description: str, title: str | None = None, error: str | None = None, job: str | None = None) -> str:
    """Return the title of a task.

    The given title, shortened, unless it only repeats the job, or job and error; else job, error class and message
    without ids, paths and times; else the first sentence of the description.
    """
    given = " ".join((title or "").split())
    repeated = bool(error and job) and _repeats(given, job or "")
    if given and not repeated:
        return given if len(given) <= TITLE_CHARS else _shortened(_short_words(given))
    if error and error.strip():
        return failure_title(job, error)
    if job:
        return failure_title(job, "")
    lines = (" ".join(line.split()) for line in description.splitlines())
    first = next((line for line in lines if line), "")
    sentence = re.split(r"(?<=[.?!]) ", first, maxsplit=1)[0]
    return _cut(sentence or "no title", TITLE_CHARS)


def _repeats(given: str, job: str) -> bool:
    """Return whether a title is the name of the job or a part of it, or begins with it and is too long."""
    return given.casefold() in job.casefold().split(".") or (len(given) > TITLE_CHARS and given.startswith(job))


def failure_title(job: str | None, error: str) -> str:
    """Return `<job> failed: <class>: <message>`, dropping parentheses and then last clauses of the message to fit."""
    name = _end_of(job, _JOB_CHARS) if job else ""
    raised, text = headline(_logged(error) or error)
    raised = re.split(r"[.$:]+", raised)[-1] if raised else ""
    lines = (" ".join(line.split()) for line in (text_of_result(text) or text).split("\n\n")[0].splitlines())
    first, *more = [line for line in lines if line] or [""]
    message = _short_words(": ".join(line.rstrip(" :.") for line in (first, *takewhile(_is_message, more))))
    heads = [f"{name} failed: ", f"{name}: "] if name else [""]
    begin, _, rest = message.partition(": ")
    if name and name in begin and len(rest) >= _TELLING_CHARS:
        message = rest
    whole = f"{raised}: {message}" if raised and message and not message.startswith(raised) else message or raised
    if not whole:
        return f"{name} failed" if name else _cut(" ".join(error.split()) or "no title", TITLE_CHARS)
    fitting = (
        f"{head}{body}"
        for body in _clauses(whole)
        for head in heads
        if len(head) + len(body) <= TITLE_CHARS and (body == whole or len(head) + len(body) >= _ENOUGH_CHARS)
    )
    return _complete(next(fitting, None), whole) or _cut(f"{heads[-1]}{_clear(whole)}", TITLE_CHARS)


def _logged(error: str) -> str | None:
    """Return the exception at the end of an error that quotes a log before it."""
    lines = [line for line in error.split("\n") if line.strip()]
    is_log = len(lines) > _LOG_LINES and headline(error)[0] is None
    return lines[-1].strip() if is_log and headline(lines[-1])[0] is not None else None


def _is_message(line: str) -> bool:
    return _BESIDE.match(line) is None


def _clauses(text: str) -> Iterator[str]:
    """Yield the text, the text without parentheses, then of an error that wraps others the outer ones and the
    cause, then the text without its last clauses, as soon as it may fit.
    """
    yield text
    clear = _clear(text)
    *wrapping, cause = clear.split(": ")
    if len(wrapping) >= _WRAPPING and _CAUSE.fullmatch(cause) and cause not in wrapping:
        yield clear
        fitting = min(len(wrapping) - 1, TITLE_CHARS // len(": "))
        yield from (f"{': '.join(wrapping[:kept])}:{_CUT} {cause}" for kept in range(fitting, 0, -1))
    while clear:
        yield clear
        ends = [clause.start() for clause in _CLAUSE.finditer(clear, 0, 2 * TITLE_CHARS)]
        clear = clear[: ends[-1]].rstrip(" .") if ends else ""


def _shortened(text: str) -> str:
    fitting = (each for each in _clauses(text) if _ENOUGH_CHARS <= len(each) <= TITLE_CHARS)
    return _complete(next(fitting, None), text) or _cut(_clear(text), TITLE_CHARS)


def _complete(title: str | None, whole: str) -> str | None:
    """Return the title, unless it ends in a name whose clause would be lost: a cut after a word keeps more of it."""
    ends_whole = title is None or title.endswith((whole, _clear(whole)))
    return title if ends_whole or not _NAME.search(title or "") else None


def _clear(text: str) -> str:
    bare = _EMPTY.sub("", _ASIDE.sub("", text))
    clear = " ".join(_COLONS.sub(lambda match: ": " if match[1] else match[0], bare).split()).lstrip(":;, ")
    return text if not clear or clear.endswith(":") else clear


def _short_words(text: str) -> str:
    """Drop ids, times and URL queries, and shorten paths to their last part."""
    text = _QUERY.sub(r"\1", _NOISE.sub("", text))
    text = _PATH.sub(lambda match: re.split(r"[/\\]", match[0].rstrip("/\\"))[-1], text)
    return " ".join(_EMPTY.sub("", text).split()).strip(" .:;,-")


def _cut(text: str, limit: int) -> str:
    """Cut a text, at the end of a word if one ends in its second half."""
    if len(text) <= limit:
        return text
    end = text.rfind(" ", limit // 2, limit - len(_CUT) + 1)
    return text[: end if end > 0 else limit - len(_CUT)].rstrip(" ,;:.-") + _CUT


def _end_of(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"…{text[1 - limit :]}"
