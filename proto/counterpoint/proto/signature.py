"""Error signatures: occurrences of the same failure have the same signature.

A failure has a class (exception, SQLSTATE, exit code, HTTP or gRPC status, errno, product code), a template (its
message with paths, ids, hosts, addresses, ports, times and numbers replaced by placeholders) and parameters (the values
replaced).
Codes, words and quoted names stay in the template; quoted values that could not be converted do not.
"""

import hashlib
import json
import re
import unicodedata

from counterpoint.proto.error_signals import signals_of, without_signals
from counterpoint.proto.error_template import PLACEHOLDER, codes_of, template, without_leading_status
from counterpoint.proto.messages import Shape

TRACE_LIMIT_CHARS = 20_000
TEXT_LIMIT_CHARS = 1_000


class Signature(Shape):
    """The identity of a failure.

    `error_class` is the exception's name as written, if there is one; `text` the template; `digest` 16 hex digits over
    both, equal exactly when both are. `codes` are the error codes of the message. `generic`: the template names no
    cause ("task failed", "exit code 1", nothing at all), so that equal digests do not mean equal failures.
    """

    error_class: str | None
    text: str
    digest: str
    codes: tuple[str, ...] = ()
    generic: bool = False


def signature(error: str) -> Signature:
    """Return the signature of an error: a message, `Class: message`, or a Python or Java stack trace."""
    error_class, message = headline(error)
    text = template(message)[:TEXT_LIMIT_CHARS].strip()
    signals = signals_of(message)
    if len(signals) == 1 and _names_only_signal(error_class, message, signals[0]):
        error_class, text = None, f"signal {signals[0]}"
    digest = hashlib.sha256(f"{error_class or ''}\x1f{text}".encode()).hexdigest()[:16]
    codes = codes_of(message)
    return Signature(
        error_class=error_class, text=text, digest=digest, codes=codes, generic=_is_generic(error_class, text, codes)
    )


def without_status(error: str) -> str | None:
    """Return the headline of an error without the HTTP status in front of its message; None without such a status."""
    error_class, message = headline(error)
    bare = without_leading_status(message)
    return None if bare == message else f"{error_class}: {bare}" if error_class else bare


def parameters(error: str) -> tuple[str, ...]:
    """Return the values that the template replaces, in the order of the rules that find them."""
    found: list[str] = []
    template(headline(error)[1], found.append)
    return tuple(dict.fromkeys(found))


_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PYTHON_TRACE = "Traceback (most recent call last):"
_PYTHON_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::(.*)|\s*\Z)", re.S | re.M)
_JAVA_FRAME = re.compile(r"^[ \t]+(?:at \S|\.\.\. \d+ more)|^Caused by: ", re.M)
_NAMED = re.compile(
    r"""^(?:Exception\ in\ thread\ "[^"\n]*"\s+|Uncaught\ )?
        ( (?:[A-Za-z_$][\w$]*\.)+[A-Z][\w$]*
        | [A-Za-z_$][\w$]*(?:Error|Exception|Failure|Fault|Exit|Interrupt|Warning|Timeout|Expired|NotFound|Denied)
        | Error | Exception )
        (?: : (?:\s+ (.*))? | \s* )$""",
    re.S | re.X,
)
_RESULT = re.compile(r"(?:(=>)\s*)?(?=\{\s*\")")
_RESULT_FIELDS = ("msg", "message", "detail", "error", "stderr")
"""Fields of a result in JSON that say what has failed, as Ansible and many HTTP APIs name them."""


def headline(error: str) -> tuple[str | None, str]:
    """Return the exception class, if named, and the message; of a stack trace those of the raised exception, of a
    result in JSON what it says has failed, with its codes."""
    error_class, message = _named(error)
    result = text_of_result(message)
    if result is None or not _tells(result):
        return error_class, message
    codes = [code for code in codes_of(message) if code not in codes_of(result) and code not in _GENERIC_CODES]
    return error_class, ": ".join((result, *codes))


def text_of_result(text: str) -> str | None:
    """Return a text with the result in JSON at its end replaced by the result's messages, without those that name no
    cause if others do; None without such a result.

    Before an arrow (`fatal: [web-3]: FAILED! => {...}`) stand only the host and the status, which are left out."""
    start = _RESULT.search(text)
    if start is None:
        return None
    try:
        result, end = json.JSONDecoder().raw_decode(text, start.end())
    except (ValueError, RecursionError):
        return None
    messages = [each for name in _RESULT_FIELDS if (each := _message(result.get(name)))]
    if not messages or text[end:].strip():
        return None
    causes = list(filter(_tells, messages)) or messages
    before = "" if start[1] else text[: start.start()].rstrip(" :")
    return ": ".join(dict.fromkeys((before, *causes))).removeprefix(": ")


def _tells(text: str) -> bool:
    """Return whether a message names a cause. A result in it is not read again."""
    error_class, message = _named(text)
    return not _is_generic(error_class, template(message)[:TEXT_LIMIT_CHARS].strip(), codes_of(message))


def _message(value: object) -> str:
    """Return a message, or the first one of an error object."""
    if isinstance(value, dict):
        value = next((each for name in _RESULT_FIELDS if isinstance(each := value.get(name), str)), None)
    return _readable(value).strip() if isinstance(value, str) else ""


def _named(error: str) -> tuple[str | None, str]:
    text = _readable(error[:TRACE_LIMIT_CHARS] if _PYTHON_TRACE not in error else error[-TRACE_LIMIT_CHARS:])
    if _PYTHON_TRACE in text:
        return _raised(text.rsplit(_PYTHON_TRACE, 1)[1])
    if frame := _JAVA_FRAME.search(text):
        text = text[: frame.start()]
    text = text.strip()
    if named := _NAMED.match(text):
        return named[1], (named[2] or "").strip()
    return None, text


def _readable(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return unicodedata.normalize("NFKC", _ANSI.sub("", text)).replace("\x00", "").replace("\r\n", "\n")


def _raised(trace: str) -> tuple[str | None, str]:
    """Return the end of a Python traceback, from the first unindented line after its frames."""
    text = "\n".join(trace.splitlines())
    if raised := _PYTHON_RAISED.search(text):
        return raised[1], (raised[2] or "").strip()
    return None, text.strip()


def _is_generic(error_class: str | None, text: str, codes: tuple[str, ...]) -> bool:
    if any(code not in _GENERIC_CODES for code in codes):
        return False
    class_words = _CAMEL.findall((error_class or "").rpartition(".")[2])
    words = _TEMPLATE_WORD.findall(PLACEHOLDER.sub(" ", text))
    return all(word in _GENERIC_WORDS for word in (*(word.lower() for word in class_words), *words))


def _names_only_signal(error_class: str | None, message: str, signal: int) -> bool:
    """Return whether a message says nothing but that a signal ended a process."""
    rest = without_signals(message)
    ends = tuple(f" {number}" for number in (signal, 128 + signal))
    other = (code for code in codes_of(rest) if not (code.startswith(_PROCESS_CODES) and code.endswith(ends)))
    return _is_generic(error_class, template(rest), tuple(other))


_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_TEMPLATE_WORD = re.compile(r"[^\W\d_]+")
_GENERIC_CODES = frozenset({"exit code 1", "exit status 1", "exit code 255", "return code 1", "returncode 1", "code 1",
    "error code 1", "rc 1", "exited with code 1", "exited with status 1", "status 1", "status code 1"})  # fmt: skip
_PROCESS_CODES = ("exit", "return", "rc ", "signal ")
_GENERIC_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a aborted airflow an and application as at backoff backofflimitexceeded bash been by called caused check
        code command container could dag dbt did does due during ended error errors exception execution
        exit exited fail failed failing fails failure fatal finished for found from full had has have
        ignoring in internal is it its job jobs limit log logs look message model more no non none not
        null occurred of on operator or other out output please pod process processing raised reached
        received refer result return returned run running runtime script see sh shell signal something
        spark specified stage state status stderr stdout step stopped subprocess success successful
        successfully system task tasks terminated test than that the there this to trace traceback
        trigger unable unexpected unexpectedly unknown unsuccessful unsuccessfully was went were while
        with without worker workflow wrong your zero""",
    )
)
