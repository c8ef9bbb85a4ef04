"""The template of an error message, in which its values are replaced by placeholders, and its codes."""

import re
import string
from collections.abc import Callable
from http import HTTPStatus

from counterpoint.proto.error_signals import as_exit_codes, signals_of

MESSAGE_LIMIT_CHARS = 4_000


def template(message: str, collect: Callable[[str], None] | None = None) -> str:
    """Return the template of a message. `collect` is called with each value that is replaced, in the order of
    the rules."""
    text = as_exit_codes(message[:MESSAGE_LIMIT_CHARS])
    for pattern, replacement in _RULES:
        if collect is not None and replacement is not _spelled:
            for match in pattern.finditer(text):
                replaced = match.expand(replacement) if isinstance(replacement, str) else replacement(match)
                if replaced != match[0]:
                    value = match[0].translate(_DIGITS).strip()
                    if not PLACEHOLDER.search(value):
                        collect(value)
        text = pattern.sub(replacement, text)
    return " ".join(text.translate(_DIGITS).casefold().split())


def codes_of(message: str) -> tuple[str, ...]:
    """Return the codes of a message in lower case, such as `exit code 137`, `sqlstate 23505`, `ora-01653`, and the
    signals that they stand for. What looks like a product's code in a replaced value, such as a path, is none."""
    text = as_exit_codes(message[:MESSAGE_LIMIT_CHARS])
    found = [
        f"{_CODE_KIND.sub(' ', match[1].casefold()).strip()} {match[2].casefold()}"
        for rule in _CODE_RULES
        for match in rule.finditer(text)
    ]
    found += [f"signal {number}" for number in signals_of(text)]
    found += [f"http {match[2]}" for match in _LEADING_STATUS_RULE.finditer(text)]
    found += [f"sqlstate {match[2].casefold()}" for rule in _SQLSTATE_RULES for match in rule.finditer(text)]
    if products := [match[2].casefold() for match in _PRODUCT_CODE_RULE.finditer(text)]:
        kept = template(message)
        found += [code for code in products if code in kept]
    found += [name for match in _ERRNO_NAME.finditer(text) if (name := match[0].casefold()) not in _CAPITALS]
    statuses = ((match[1] or match[2]).replace("_", "").casefold() for match in _GRPC_STATUS.finditer(text))
    found += [f"grpc {status}" for status in statuses if status not in _GRPC_WRAPPERS]
    return tuple(dict.fromkeys(found))


def without_hosts(message: str) -> str:
    """Return a message without the fully qualified names of hosts and their ports."""
    return _HOST_NAME.sub(" ", message)


def without_leading_status(message: str) -> str:
    """Return a message without the HTTP status in front of it, which some clients put there and others do not."""
    status = _LEADING_STATUS_RULE.match(message)
    return message[status.end() :].lstrip(": ") if status else message


PLACEHOLDER = re.compile(r"<(?:url|mail|time|host|path)>|#|[⓪①②③④⑤⑥⑦⑧⑨]")
_PORT = r"(?::\d{1,5}\b)?"
_LABEL = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}"
_DOMAIN = (
    r"(?:com|net|org|io|dev|app|cloud|edu|gov|info|biz|internal|intra|intranet|local|localdomain|lan|corp|home|svc"
    r"|arpa|invalid|example|prod|staging|private|consul|eu|de|fr|uk|us|nl|ch|jp|cn|au|ca|br|se|es|pl)"
)
_HOST_NAME = re.compile(rf"(?<![\w.-])(?:{_LABEL}\.){{1,12}}{_DOMAIN}\.?(?![\w-]|\.\w){_PORT}", re.I)
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DAY = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_ZONE = r"(?:\s?(?:z|utc|gmt)\b|\s?[+-]\d{2}:?\d{2}\b)?"
_FILE = (
    r"(?:py|pyc|js|ts|java|scala|go|rs|c|h|cpp|rb|php|sh|sql|ya?ml|toml|ini|cfg|conf|env|json|jsonl|ndjson|xml|csv|tsv"
    r"|parquet|avro|orc|xlsx?|txt|log|md|html?|pdf|gz|zip|tar|tgz|bz2|zst|jar|whl|so|dll|exe|lock|pid|sock|pem|crt|key"
    r"|tmp|bak|db|sqlite)"
)
_UNIT = (
    r"(?:ns|us|µs|μs|ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|milliseconds?|microseconds?|weeks?"
    r"|[kmgtp]?i?b|[kmgtp]?bytes?|[kmg]?bps|[kmgtp]i)"
)
_VOWELLESS = r"[bcdfghjklmnpqrstvwxz2456789]"


def _identifier(match: re.Match[str]) -> str:
    """Replace numeric and random-looking parts of a token by `#`, and only the digits of its other parts."""
    parts = re.split(r"([-_.])", match[0])
    return "".join(_part(part) for part in parts)


def _part(part: str) -> str:
    if not any(c in string.digits for c in part):
        return part
    return "#" if len(part) >= 5 else re.sub("[0-9]+", "#", part)


def _rule(
    pattern: str, replacement: str | Callable[[re.Match[str]], str], flags: re.RegexFlag = re.I
) -> tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]:
    return re.compile(pattern, flags), replacement


def _spelled(match: re.Match[str]) -> str:
    """Return a code in circled digits, which the number rules skip; NFKC has removed them from the input."""
    return match[1] + match[2].translate(_LETTERS)


_LETTERS = str.maketrans("0123456789", "⓪①②③④⑤⑥⑦⑧⑨")
_DIGITS = str.maketrans("⓪①②③④⑤⑥⑦⑧⑨", "0123456789")
_CODE = (
    r"((?<![^\W_])(?:http(?:/\d(?:\.\d)?)?(?:\s+(?:status|error|response))?|status(?:[\s_-]?code)?|errno|errcode"
    r"|exit(?:ed with)?[\s_-]+(?:code|status)|exitcode|(?:error|return|response)[\s_-]?code|signal|code|sqlcode"
    r"|winerror|rc|fehlercode|r(?:ü|ue)ckgabewert)['\"]?\s?[:=\[(]?\s?['\"]?-?)"
    r"(\d{1,5})(?!\w|\.\d)"
)
_ERROR_NUMBER = r"(\b(?:error\s[#(]?|msg\s))(\d{3,5})(?=\s\(|[:,)]|\.?$)"
_HTTP_STATUS = r"(\bresponse\s)([1-5]\d\d)(?!\w|\.\d|,\d)"
_LEADING_STATUS = rf"\A()({'|'.join(str(int(status)) for status in HTTPStatus if status >= 400)})(?=:?\s[A-Z])"
_HRESULT = r"(\b(?:error|hresult|status|code)\s?[:=(]?\s?)(0x[8c][0-9a-f]{7})\b"
_SQLSTATE = r"(\bsql\s?state\s?[:=\[(]?\s?['\"]?)([0-9A-Z]{5})(?!\w)"
_BRACKETED_SQLSTATE = (
    r"([\[(]'?)(?=[0-9A-Z]*[0-9])(?=[0-9A-Z]*[A-Z])((?:[0-5][0-9A-Z]|F0|H[VYZ]|IM|P0|XX)[0-9A-Z]{3})(?='?[\]),])"
)
_PRODUCT_CODE = (
    r"(?<![\w-])()([A-Z]{2,6}-[0-9]{4,6}|[A-Z]{2,6}-[0-9]{3}(?=:)|[A-Z]{2,6}[0-9]{4,6}[A-Z]?|E[0-9]{4}"
    r"|[0-9]{6}(?=\s\([0-9A-Z]{5}\)))(?=[:,)\]\s.]|$)"
)
_BEFORE_VALUE = "|".join(
    f"(?<={lead})"
    for lead in (
        "convert string ", "convert value ", "cast string ", "cast value ", "parse string ", "input string: ",
        "string to float: ", "string to int: ", "with base 10: ", "time data ", "duplicate entry ", "date value ",
        "datetime value: ", "date value: ", "integer value: ", "decimal value: ", "double value: ", "type integer: ",
        "type bigint: ", "type numeric: ", "type double precision: ", "type boolean: ", "type uuid: ", "type date: ",
        "type timestamp: ", "type json: ",
    )
)  # fmt: skip
"""Words of conversion and constraint errors after which a quoted text is a value, not a name."""
_VALUE = rf"(?:{_BEFORE_VALUE})(?P<quote>['\"`])[^'\"`\n]{{0,200}}(?P=quote)"
_CODE_RULES = tuple(re.compile(pattern, re.I) for pattern in (_CODE, _ERROR_NUMBER, _HTTP_STATUS, _HRESULT))
_SQLSTATE_RULES = (re.compile(_SQLSTATE, re.I), re.compile(_BRACKETED_SQLSTATE))
_LEADING_STATUS_RULE = re.compile(_LEADING_STATUS)
_PRODUCT_CODE_RULE = re.compile(_PRODUCT_CODE)
_CODE_KIND = re.compile(r"[^a-zü/]+")
_ERRNO_NAME = re.compile(r"\bE(?:[A-Z]{3,}(?:_[A-Z]+)*)\b")
_GRPC_STATUS = re.compile(r"\brpc error: code = ([A-Z][A-Za-z]+)\b|\bStatusCode\.([A-Z]+(?:_[A-Z]+)*)\b")
_GRPC_WRAPPERS = frozenset({"ok", "unknown", "internal"})
"""Statuses that servers give to the errors of others, so that one failure may have them and another one."""
_CAPITALS = frozenset(
    re.findall(
        r"\w+",
        """each earlier edge effect either element else email empty enable enabled encoding end ended endpoint engine
        entity entry environment errno error errors escape estimate etl evaluation event events every exact example
        exceed exceeded except exception exceptions exclude exclusive exec execute executed executing execution
        executor exist existing exists exit exited expand expected expired explain export expression extend extent
        external extra extract""",
    )
)
"""Words in capitals that are no names of errors, though they begin like `ENOENT`."""
_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    _rule(_CODE, _spelled),
    _rule(_ERROR_NUMBER, _spelled),
    _rule(_HTTP_STATUS, _spelled),
    _rule(_LEADING_STATUS, _spelled, re.NOFLAG),
    _rule(_HRESULT, _spelled),
    _rule(_SQLSTATE, _spelled),
    _rule(_BRACKETED_SQLSTATE, _spelled, re.NOFLAG),
    _rule(_PRODUCT_CODE, _spelled, re.NOFLAG),
    _rule(_VALUE, "'#'"),
    _rule(
        r"(?<![\w/+.-])(?=[A-Za-z+/_-]*[0-9])(?=[a-z0-9+/_-]*[A-Z])(?=[A-Z0-9+/_-]*[a-z])[A-Za-z0-9+/_-]{16,}"
        r"={0,2}(?![\w/+=-])",
        "#",
        re.NOFLAG,
    ),
    _rule(r"(?<![\w+.-])[a-z][a-z0-9+.-]{0,30}://[^\s'\"<>()\[\],]*[^\s'\"<>()\[\],.:;]", "<url>"),
    _rule(r"(?<![\w.+-])[\w.+-]{1,64}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}\b", "<mail>"),
    _rule(rf"\b\d{{4}}-\d{{2}}-\d{{2}}(?:[ t_]{_CLOCK}{_ZONE})?(?![\w-])", "<time>"),
    _rule(
        rf"\b\d{{8}}t\d{{4,6}}z?\b|(?<![\w./])\d{{1,4}}[/.]\d{{1,2}}[/.]\d{{2,4}}\b(?!\.\d)(?:,?\s{_CLOCK}{_ZONE})?",
        "<time>",
    ),
    _rule(
        rf"\b(?:{_DAY},?\s+)?(?:{_MONTH}\s+\d{{1,2}}|\d{{1,2}}\s+{_MONTH})(?:,?\s+\d{{4}})?"
        rf"(?:\s+{_CLOCK}{_ZONE})?(?:\s+\d{{4}})?\b",
        "<time>",
    ),
    _rule(r"(?<![\w.-])\d{8}[-_]\d{6}(?:[-_](?:\d{1,6}|[a-z0-9]{5,8})){1,2}(?![\w-])", "#"),
    _rule(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "#"),
    _rule(
        r"\[?(?<![\w:])(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"
        r"|(?=[0-9a-f:]*::)(?=[0-9a-f:]*\d)(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4})(?![\w:])"
        r"(?:%\w+)?(?:\](?::\d{1,5}\b)?)?",
        "<host>",
    ),
    _rule(rf"(?<![\w.])(?:{_OCTET}\.){{3}}{_OCTET}(?![\w.]\d)(?:/\d{{1,2}}\b)?{_PORT}", "<host>"),
    _rule(rf"(?<![\w:]){_CLOCK}{_ZONE}(?!\w)", "<time>"),
    _rule(r"(['\"`])(?:~?/|[a-z]:[\\/]|\\\\|\./|\.\./)[^'\"`\n]*\1", r"\1<path>\1"),
    _rule(r"(?<![\w.])[a-z]:[\\/][^\s'\"`,;)]*|(?<!\w)\\\\[^\s'\"`,;)]+", "<path>"),
    _rule(r"(?<![\w/<>])(?:~|\.{1,2})?/[^\s'\"`,;:)\]}]*[^\s'\"`,;:.)\]}](?::\d+(?::\d+)?)?", "<path>"),
    _rule(rf"(?<![\w/.@+-])(?:[\w.@+-]++/)+(?![\w.@+-]++/)[\w@+-][\w.@+-]*\.{_FILE}\b(?::\d+(?::\d+)?)?", "<path>"),
    _rule(r"(?<![\w/.@+-])[\w.@+-]++/[\w.@+-]++(?:/[\w.@+-]++)+/?", "<path>"),
    (_HOST_NAME, "<host>"),
    _rule(rf"(?<![\w.@+-])[\w@+-][\w.@+-]*\.{_FILE}\b(?!\.\w)(?::\d+(?::\d+)?)?", "<path>"),
    _rule(rf"\blocalhost{_PORT}(?!\w)|(?<![\w.-]){_LABEL}(?:\.{_LABEL}){{1,12}}:\d{{2,5}}\b(?!:)", "<host>"),
    _rule(
        rf"(\b(?:host(?:\s?name)?|hostname|server|node|resolver|nameserver|broker|peer|address|machine|pod|container)"
        rf"(?:\s*[:=]\s*|\s+)['\"`]?)(?=[\w-]*[\d.]|[\w-]+-[\w-]*){_LABEL}(?:\.{_LABEL}){{0,12}}{_PORT}(?![\w<])",
        r"\1<host>",
    ),
    _rule(
        rf"(\b(?:host(?:\s?name)?|hostname)\s*(?:[:=]\s*)?(['\"`])){_LABEL}(?:\.{_LABEL}){{0,12}}{_PORT}(?=\2)"
        rf"|(\b(?:ENOTFOUND|EAI_AGAIN|host\s?name\s?=|host=|hostname=)\s?){_LABEL}(?:\.{_LABEL}){{0,12}}{_PORT}(?![\w<])",
        lambda m: f"{m[1] or m[3]}<host>",
    ),
    _rule(
        rf"(\b(?:to|at|from|on|via|with|host|server|broker|resolver|peer|connect|connecting|resolve|resolving|@)\s+"
        rf"['\"`]?){_LABEL}(?:\.{_LABEL}){{0,12}}:\d{{2,5}}\b",
        r"\1<host>",
    ),
    _rule(rf"(?<![\w#])(?<!\d[.,])[+-]?\d++(?:[.,]\d++)*\s?(?:%|{_UNIT}\b)", "#"),
    _rule(r"\b(?:\d{1,4}(?:d|h|ms?|s)){2,6}\b", "#"),
    _rule(r"\b0x[0-9a-f]+\b|\b(?=[a-f]*\d|\d*[a-f]{8})[0-9a-f]{7,}\b", "#"),
    _rule(r"(?<![\w.])[+-]?\d++(?:[.,:]\d++)*(?![.,:]\d)(?:e[+-]?\d+)?(?!\w|\.\w)", "#"),
    _rule(r"[\w.-]+", _identifier, re.NOFLAG),
    _rule(rf"(?<=#-){_VOWELLESS}{{5}}(?![\w-])", "#"),
    _rule(r"#(?:[,;.\s/x:_-]*#)+", "#"),
)
