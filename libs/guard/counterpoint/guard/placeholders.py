"""Placeholders: values in the place of a secret that are none.

Only the value decides. A word such as `example` near or in a value is not enough: the rest of the value must have
nothing random and no digits of its own.
"""

import base64
import binascii
import re
from urllib.parse import unquote

from counterpoint.guard.known_examples import is_known_example
from counterpoint.guard.randomness import has_random_run, is_masked, without_rows

_EXACT = frozenset(
    [
        *("changeme", "change_me", "change-me", "password", "passwd", "pass", "pwd", "secret", "token", "key"),
        *("apikey", "api_key", "none", "null", "nil", "true", "false", "example", "placeholder", "redacted"),
        *("hidden", "masked", "removed", "default", "dummy", "sample", "todo", "undefined", "unset", "empty"),
        *(
            "base64",
            "unicodepwd",
            "harbor12345",
            "unknown",
            "user",
            "username",
            "admin",
            "root",
            "guest",
            "test",
            "value",
            "string",
        ),
    ]
)
_TELLING = """
password passwords passwort kennwort geheim passwd passphrase passcode passw pass pword pwd psw pw secret sekret token
apikey credential credentials changeit changeme change replace replaceme placeholder example sample dummy fake test
testing demo foo bar baz qux foobar foobared redacted masked hidden removed default todo fixme undefined unset generated
secured insert enter your yours xxx mock invalid notreal mypwd topsecret topsekret admin
administrator root guest
"""
"""Words that occur only in placeholders."""
_PLAIN = """
my the a an this is not no real some very super strong secure complex difficult long random top new old key keys user
users username guests name string value here with of for to me it in at login account
service client access private public api auth db database host server app dev local master replica replication and or
hash salt text plain shared signing encryption base share id uuid hex bytes chars character characters broker vault
personal store keystore truststore deploy initial temporary temp sooper current previous updated rotated
custom monitoring replicator operator reader writer
postgres postgresql mysql mariadb oracle mssql mongo mongodb redis minio keycloak grafana airflow superset metabase
rabbitmq kafka elastic elasticsearch kibana clickhouse cassandra influx influxdb trino hive spark druid meltano dagster
prefect nats jenkins gitlab nexus vault consul wordpress joomla drupal
"""
"""Words that accompany them; the last ones are product names."""
_LEET = {"a": "a4@", "e": "e3", "i": "i1!", "l": "l1", "o": "o0", "s": "s5$", "t": "t7+", "g": "g9", "b": "b8"}
_SIGNS = frozenset("-_.!@#$%&*:/\\ ,+?()[]{}<>='\"`~^|;")
_LEFT_CHARS_MAX = 16
_LONG_CHARS = 4
_VALUE_CHARS_MAX = 256
_SMALL_NUMBERS = frozenset(["", "0", "1", "2", "3", "4", "5", "00", "01", "02", "11", "12", "42", "99"])

_SHAPE = re.compile(
    r"(?:[$@%]\{|\\?\$\(|\$[A-Za-z_]|\{\{|%\(|%[sd]\b|\{[A-Za-z_]*\}?$)"  # a variable, a template
    r"|<[^<>]*>?$|<[^<>]*>[\w.:/-]{0,64}(?:<[^<>]*>)?$"  # a blank
    r"|[\[({]?[A-Za-z_][\w.]*[(\[]"  # a call or a lookup, or a list of them
    r"|[A-Za-z][A-Za-z0-9+.-]*://|(?:\.{0,2}/[\w.:#-]++){2,}/?$"  # a place
    r"|\[[\w ,.-]+\]$|<<[\w .-]+>>$|@[\w.]+@$|#\{|![A-Za-z]{3,}\b|arn:aws|urn:[a-z0-9-]{2,32}:"
    r"|_(?-i:[A-Z][A-Z0-9-]*)_$"  # set in italics
    r"|.{0,12}\.\.\..{0,6}$|[\w.-]+=\S*&[\w.-]+=\.{3}$"  # cut out
    r"|(?:(?:[A-Za-z]+|\d+)[-:/$])+(?:<[A-Za-z][\w .-]*(?:>|$)|\$?\{[A-Za-z_])"  # a form with blanks
    r"|\?[\w.-]{1,32}=|[A-Za-z]+=[a-z]+://"  # a query
    r"|[\"']\s?[+.]\s?[A-Za-z_][\w.()]*\s?[+.]\s?[\"']"  # strings put together
    r"|\s*[,;)\]][\s)]",  # what follows a string in code
    re.IGNORECASE,
)
_CUT_OUT = re.compile(
    r"[0-9a-f]{4,20}\.{3}$|(?:eyJ|ZXlK|LS0tLS1)\w{0,48}\.{3,4}\w{0,4}=*$|(?:hvs\.|A[KS]IA|gh[pousr]_|xox[bp]-|sk-|dapi|MII|gAAAAA|glpat-)[\w.]{0,8}\.{3}[\w.]{0,4}=*$"
)
"""The start of a hash or token of a known format, cut off; a JSON token starts with its header."""
_ENCRYPTED = re.compile(r"\{cipher\}|ENC\([A-Za-z0-9+/=]+\)?$|ENC\[AES256_GCM,|vault:v\d+:")
"""The start of an encrypted value: of Spring Cloud Config, Jasypt, SOPS or Vault."""
_PUBLIC_NKEY = re.compile(r"[ACNOUX][A-Z2-7]{55}")
"""A public NATS key; a seed begins with `S`."""
_CALL = re.compile(r"(?<![\w.])(?=[\w.]*?[A-Za-z_])[\w.]++[(\[]")
_CLOSERS = "\"'`.,;:!?()[]{}*>\\ "
_TYPE = re.compile(
    r"\(?(?=[A-Za-z0-9]{10})(?:(?:OAuth2|Saml2|X509|Pkcs\d\d?|Sha\d{1,3}|Base64|Http2|V\d|[A-Z])(?:[a-z]{2,})?){3,}"
    r"(?![A-Za-z0-9])(?:[)<.]|$)"
)
"""A type name of at least three words or standards: `Saml2X509Credential`."""
_CHARS_PER_CAPITAL = 2.6
_NAME = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+)*")
_OPENED = re.compile(r"[A-Za-z0-9+/]{6,}={0,2}")
_PLACE = re.compile(r"https?://[\w.:/-]+")
_PLAIN_NAME = re.compile(r"[a-z]{2,24}(?:[-_.][a-z]{2,24}){0,5}")
_CHOSEN = re.compile(
    r"(?!(?:sha|md|rsa|aes|utf)-?\d)(?<![A-Za-z0-9])(?:[A-Za-z]+\d{3,}|\d{3,}[A-Za-z]+)", re.IGNORECASE
)
"""A name and digits, as in passwords that people choose."""
_NO_NAME = frozenset("$!#%^&*~")
"""Characters that no placeholder name in angle brackets has."""


def _spelled(word: str) -> str:
    return "".join(f"[{re.escape(_LEET[char])}]" if char in _LEET else char for char in word)


def _words(words: str) -> re.Pattern[str]:
    """Compile a pattern of the words, also in leet spelling; short ones only as whole words."""
    longest_first = sorted(words.split(), key=len, reverse=True)
    long = (
        "(?:my|your|our|the)?(?:" + "|".join(_spelled(word) for word in longest_first if len(word) >= _LONG_CHARS) + ")"
    )
    short = "|".join(_spelled(word) for word in longest_first if len(word) < _LONG_CHARS)
    return re.compile(f"{long}|(?<![A-Za-z0-9])(?:{short})(?![A-Za-z0-9])", re.IGNORECASE)


_TELLING_WORD, _PLAIN_WORD = _words(_TELLING), _words(_PLAIN)


def is_placeholder(value: str) -> bool:
    """Whether `value` is a placeholder."""
    return is_open(value) or is_stock(value)


def is_open(value: str) -> bool:
    """Whether `value` is a blank, a known example, one repeated character, or a word for a secret."""
    bare = value.strip(_CLOSERS)
    return (
        len(set(value)) <= 2
        or bare.lower() in _EXACT
        or is_known_example(bare)
        or _PUBLIC_NKEY.fullmatch(bare) is not None
        or is_blank(value)
    )


def is_blank(value: str) -> bool:
    """Whether `value` is a variable, template, expression or path, with nothing in it that looks chosen."""
    if _CUT_OUT.match(value) is not None or _ENCRYPTED.match(value) is not None or _is_type(value):
        return True
    if _SHAPE.match(value) is None and not is_expression(value):
        return False
    in_brackets = value.startswith("<") and any(char in _NO_NAME for char in value)
    return not in_brackets and not holds_chosen(value)


def _is_type(value: str) -> bool:
    """Whether `value` begins with a type name and has nothing chosen after it. Random letters have more capitals."""
    name = _TYPE.match(value)
    return (
        name is not None
        and len(name[0]) >= _CHARS_PER_CAPITAL * sum(map(str.isupper, name[0]))
        and not holds_chosen(value[name.end() :])
    )


def holds_chosen(value: str) -> bool:
    """Whether part of `value` is random, or a name with digits as in chosen passwords."""
    return has_random_run(value) or _CHOSEN.search(without_rows(value)) is not None


def is_expression(value: str) -> bool:
    """Whether `value` is code: a variable name and closing brackets."""
    name = value.rstrip(_CLOSERS)
    closes = value[len(name) : len(name) + 1] in (")", "]", "}")
    return closes and (_NAME.fullmatch(name) is not None or _CALL.search(name) is not None)


def is_stock(value: str) -> bool:
    """Whether `value` consists of words for a secret, such as `my_password123` and `P@ssw0rd!`, or is a sequence.

    It may have other words, but no other digits.
    """
    if len(value) > _VALUE_CHARS_MAX:
        return False
    opened = _opened(value)
    return any(_is_stock(each) for each in (value.replace("\\", ""), unquote(value), opened, _opened(opened))) or (
        opened != "" and is_masked(opened)
    )


def _is_stock(value: str) -> bool:
    if not value:
        return False
    left = _TELLING_WORD.sub(" ", value)
    has_telling_word = left != value
    left = without_rows(_PLAIN_WORD.sub(" ", left))
    words = re.findall(r"[A-Za-z]+", left)
    digits = "".join(re.findall(r"\d+", left))
    if any(not (char.isalnum() or char in _SIGNS) for char in left) or digits not in _SMALL_NUMBERS:
        return False
    if not has_telling_word:
        return not words and _is_row(value)
    if words and any(char.isdigit() for char in value):
        return False
    return sum(map(len, words)) <= _LEFT_CHARS_MAX and not has_random_run(left)


def _is_row(value: str) -> bool:
    return any(char.isalnum() for char in value) and without_rows(value).strip("-_. ") == ""


def is_word(value: str) -> bool:
    """Whether `value` is plain words, a path, or the base64 of these."""
    opened = _opened(value)
    place = _PLACE.fullmatch(opened) is not None and not holds_chosen(opened)
    return place or any(_PLAIN_NAME.fullmatch(word) is not None for word in (value, opened))


def _opened(value: str) -> str:
    """Return the words that `value` encodes in base64, padded or not; else the empty text."""
    word = value.strip(_CLOSERS)
    if _OPENED.fullmatch(word) is None:
        return ""
    try:
        opened = base64.b64decode(word.rstrip("=") + "=" * (-len(word.rstrip("=")) % 4), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
    return opened.strip() if opened.isprintable() or opened.strip().isprintable() else ""
