"""German: language detection, stems, and English translations, by rules and a word list."""

import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import Stemmer  # type: ignore[import-not-found]

_WORD = re.compile(r"[a-zäöüß]+")
_STEMMER = Stemmer.Stemmer("german")
_RESTART = re.compile(
    r"\b(?:neu|wieder|erneut)\W+(?:zu)?(?:ge)?start\w*|\bstart\w+\b[^.?!]{0,200}\bneu\b", re.IGNORECASE
)
"""The separable verb "neu starten"."""
_PREFIXES = frozenset(
    ("ab", "an", "auf", "aus", "ein", "fehl", "fest", "frei", "hängen", "her", "herunter", "hin", "hoch", "los", "nach",
     "stehen", "um", "voll", "vor", "weg", "weiter", "zu", "zurück", "zusammen")
)  # fmt: skip
"""Prefixes of separable verbs, which end the clause ("bewahren wir ... auf", "bleibt ... stehen")."""
_IRREGULAR = {
    "bricht": "brech", "brach": "brech", "schlägt": "schlag", "schlug": "schlag", "fällt": "fall", "fiel": "fall",
    "hält": "halt", "hielt": "halt", "läuft": "lauf", "lief": "lauf", "tritt": "tret", "trat": "tret", "nimmt": "nehm",
    "nahm": "nehm", "gibt": "geb", "gab": "geb", "fährt": "fahr", "fuhr": "fahr", "lädt": "lad", "lud": "lad",
    "wirft": "werf", "warf": "werf", "ging": "geh", "stand": "steh", "zog": "zieh", "blieb": "bleib", "hing": "häng",
    "liest": "les", "las": "les", "lässt": "lass", "ließ": "lass", "schloss": "schließ", "griff": "greif",
    "weist": "weis", "wies": "weis", "löst": "lös", "rief": "ruf", "trägt": "trag", "trug": "trag",
}  # fmt: skip
"""Stems of verb forms with another vowel, or whose ending is part of the stem."""
_CLAUSE_END = re.compile(r"[.,;:?!\n]")
_TOKEN = re.compile(r"(?<![\w./:@=-])[\w./:@=-]*\w")
_VERB_ENDING = re.compile(r"(?:est|et|st|en|e|t)$")
_LOAN = re.compile(r"(?:ge)?(\w{3,}?)(?:test|tes|te|t|en|e|st)")
"""A borrowed verb in a German form: `failt`, `gecrasht`, `restartet`."""
_DOUBLED = re.compile(r"(\w)\1$")
_LINKS = ("", "s", "es", "n", "en", "e", "er")
_LEAST = 4
"""Minimum letters of a part of a compound."""
_MOST = 64
"""Maximum letters of a compound; longer words are data."""
_SHARED_WORDS = frozenset(
    ("am", "an", "also", "bin", "da", "den", "des", "die", "in", "so", "war", "was", "man", "oder", "index", "alarm",
     "parallel", "version", "server", "name", "minute", "problem", "variable", "probe", "er", "hat", "um", "ja", "du",
     "alle", "als", "testen", "pro", "hin", "dir", "deren")
)  # fmt: skip
"""Words of the list that are also English."""


@cache
def _words() -> tuple[frozenset[str], dict[str, dict[str, tuple[str, ...]]]]:
    """Return the stop words, and the other words by stem with their English translations."""
    stop_words, translations = set[str](), dict[str, dict[str, tuple[str, ...]]]()
    for line in (
        files("counterpoint.developer.language").joinpath("german.txt").read_text(encoding="utf-8").splitlines()
    ):
        if not line or line.startswith("#"):
            continue
        word, *english = line.split()
        if english:
            translations.setdefault(_STEMMER.stemWord(word), {})[word] = tuple(english)
        else:
            stop_words.add(word)
    return frozenset(stop_words), translations


def _english_of_stem(word: str) -> tuple[str, ...] | None:
    """Return the translation of the longest known prefix with the same stem, else of all words of that stem."""
    known = _words()[1].get(stem(word))
    if known is None:
        return None
    first = max((each for each in known if word.startswith(each)), key=len, default=None)
    return known[first] if first else tuple(dict.fromkeys(each for of in known.values() for each in of))


@lru_cache(maxsize=2_000)
def is_german(text: str) -> bool:
    """Return whether a text is German: two of its words, or a fifth of them, are."""
    words = _WORD.findall(text.lower())
    kinds = [_kind_of(word) for word in words]
    marked = sum(kind.marked for kind in kinds)
    stop_word_count = sum(kind.is_stop_word for kind in kinds)
    return bool(words) and (
        stop_word_count >= 2
        or (stop_word_count + marked >= 1 and sum(kind.telling for kind in kinds) + marked >= 0.3 * len(words))
    )


class _WordKind(NamedTuple):
    """Whether a word tells German from English, is a stop word that does, and has a letter that English lacks."""

    telling: bool
    is_stop_word: bool
    marked: bool


@lru_cache(maxsize=20_000)
def _kind_of(word: str) -> _WordKind:
    stop_words, translations = _words()
    telling = word not in _SHARED_WORDS and (word in stop_words or _STEMMER.stemWord(word) in translations)
    return _WordKind(telling, telling and word in stop_words, any(letter in word for letter in "äöüß"))


def stop_word(word: str) -> bool:
    """Return whether a word is a German stop word."""
    return word in _words()[0]


def stem(word: str) -> str:
    """Return the German stem of a lower-case word."""
    return str(_STEMMER.stemWord(word))


@lru_cache(maxsize=20_000)
def english_words(word: str) -> tuple[str, ...]:
    """Return the English translations of a German word, or of the parts of a compound; none if it is unknown."""
    lowered = word.lower()
    if (known := _english_of_stem(lowered)) is not None:
        return known
    if len(lowered) > _MOST:
        return ()
    for cut in range(len(lowered) - _LEAST, _LEAST - 1, -1):
        head, last = lowered[:cut], _english_of_stem(lowered[cut:])
        if last is None:
            continue
        for link in _LINKS:
            if (
                head.endswith(link)
                and (first := _english_of_stem(head.removesuffix(link) if link else head)) is not None
            ):
                return (*first, *last)
    for cut in range(len(lowered) - _LEAST, _LEAST - 1, -1):
        if (last := _english_of_stem(lowered[cut:])) is not None:
            return last
    return ()


@lru_cache(maxsize=20_000)
def borrowed_words(word: str) -> frozenset[str]:
    """Return the English words that an unknown German word in lower case may be a form of: `fail` for `failt`, `reset`
    for `resette`; none for a known word."""
    form = _LOAN.fullmatch(word) if len(word) <= _MOST and not english_words(word) else None
    if form is None:
        return frozenset()
    stems = {form[1], form[1].removesuffix("e"), word.removesuffix("t").removesuffix("e")}
    return frozenset(each for stem in stems for each in (stem, _DOUBLED.sub(r"\1", stem)) if len(each) >= 3)


def restarts(text: str) -> bool:
    """Return whether a text contains "neu starten", also separated."""
    return _RESTART.search(text) is not None


@lru_cache(maxsize=2_000)
def separated_verbs(text: str) -> dict[str, str]:
    """Return the known verbs of a text whose prefix ends their clause: `bewahren` is `aufbewahren` in "Wie lange
    bewahren wir das auf?", `bricht` is `abbrechen` in "Warum bricht der Lauf ab?"."""
    found: dict[str, str] = {}
    for clause in _CLAUSE_END.split(text.lower()):
        *words, prefix = _WORD.findall(clause) or [""]
        for word in words if prefix in _PREFIXES else ():
            verb = f"{prefix}{_IRREGULAR.get(word) or _VERB_ENDING.sub('', word)}en"
            if (word in _IRREGULAR or len(word) >= _LEAST) and _english_of_stem(verb) is not None:
                found[word] = verb
    return found


@lru_cache(maxsize=500)
def english(text: str) -> str | None:
    """Translate a German text word by word, keeping names and codes; None for other languages."""
    if not is_german(text):
        return None
    parts = ["restart"] if restarts(text) else []
    verbs = separated_verbs(text)
    for token in _TOKEN.findall(text):
        lowered = token.lower()
        if not _WORD.fullmatch(lowered):
            parts += (
                [" ".join(english_words(piece)[:1]) or piece for piece in token.split("-")] if "-" in token else [token]
            )
        elif not stop_word(lowered):
            parts.append(" ".join(english_words(verbs.get(lowered, lowered))[:2]) or token)
    return " ".join(parts)
