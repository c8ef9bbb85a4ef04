"""Terms of a text for the lexical leg: English words, exact forms, quoted phrases.

PostgreSQL's own parser does not fit technical texts: it cuts `clean_orders` in two and hides the words of
`airflow.providers.http` inside one host name. So the words are prepared here, the 'english' configuration stems them
and drops stop words, and exact forms (identifiers, dotted names, paths, addresses, error codes) are kept beside them as
lexemes of their own.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

# Longer words are encoded data, not words; PostgreSQL would refuse them from 2 KB on.
MAX_WORD_CHARS = 200

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_JOINED = re.compile(r"\w+(?:[-./:@+#=&?%~]+\w+)*")
_ADDRESS_PART = re.compile(r"[:@+#=&?%]+")
_PATH_PART = re.compile(r"[/:@+#=&?%]+")
_CODE = re.compile(r"(?=.*\d)(?=.*[^\W\d_])\w+|(?=\w*?[^\W_]_++[^\W_])\w+|(?s:.*\w[-./:@+#=&?%~]+\w.*)")
# Names of one thing: with marks that prose does not have, and neither an ordinal nor `e.g.` nor `python3`.
_NAME = re.compile(r"(?=.{4})(?:.*_.*|(?=.*[^\W\d])(?:\D*\d){3}.*|.*\w[.:@#=]\w.*)", re.DOTALL)
_QUOTED = re.compile(r"""(?<!\w)(?:"([^"\n]{1,300})"|'([^'\n]{1,300})'|`([^`\n]{1,300})`|“([^”\n]{1,300})”)(?!\w)""")


@dataclass(frozen=True)
class Terms:
    """`words`: the text for `to_tsvector('english', ...)`; `exact`: lexemes as written, in lower case, of which `names`
    name one thing; `phrases`: the quoted strings of more than one word, each prepared as `words` are."""

    words: str
    exact: tuple[str, ...]
    phrases: tuple[str, ...]
    names: tuple[str, ...] = ()


def terms(text: str) -> Terms:
    """Return the terms of a text for the index, or of a query for its lookup. Pure, and the same for both."""
    plain = unicodedata.normalize("NFKC", text).replace("\x00", " ").replace("\\", "/")
    plain = plain.encode(errors="replace").decode()
    quoted = (_words("".join(groups)) for groups in _QUOTED.findall(plain))
    humped = [word.lower() for word in _WORD.findall(plain) if _HUMP.search(word) and len(word) <= MAX_WORD_CHARS]
    joined = [form for token in _JOINED.findall(plain) for form in _forms(token.lower())]
    return Terms(
        words=_words(plain),
        exact=tuple(dict.fromkeys([*joined, *humped])),
        phrases=tuple(dict.fromkeys(phrase for phrase in quoted if " " in phrase)),
        names=tuple(dict.fromkeys([*filter(_NAME.fullmatch, joined), *humped])),
    )


def weighed(parts: Iterable[tuple[str, int]]) -> Terms:
    """Return the terms of several texts as one row; the terms of each are repeated by its weight."""
    found = [(terms(text), times) for text, times in parts]
    return Terms(
        words=" ".join(each.words for each, times in found for _ in range(times)),
        exact=tuple(dict.fromkeys(form for each, _ in found for form in each.exact)),
        phrases=(),
    )


def _words(text: str) -> str:
    """Return the words in lower case, in order; a camel-case word is followed by its parts."""
    found: list[str] = []
    for word in _WORD.findall(text):
        if len(word) > MAX_WORD_CHARS:
            continue
        found.append(word.lower())
        if _HUMP.search(word):
            found.extend(part.lower() for part in _CAMEL.findall(word))
    return " ".join(found)


def _forms(token: str) -> list[str]:
    """Return the token itself and the parts of a path or an address, if they are more than plain words."""
    parts = [token, *_ADDRESS_PART.split(token), *_PATH_PART.split(token), *re.findall(r"\w+", token)]
    return [part for part in parts if len(part) <= MAX_WORD_CHARS and _CODE.fullmatch(part)]
