"""German: language detection, stems, and English translations, by rules and a word list."""

import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import Stemmer  # type: ignore[import-not-found]

_WORD = re.compile(r"[a-zäöüß]+")
_LETTERS = re.compile(r"[^\W\d_]+")
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
_INSEPARABLE = frozenset(("ent", "miss", "ver", "zer", "durch", "hinter", "über", "unter", "wider"))
"""Prefixes that verbs keep."""
_IRREGULAR = {
    "bricht": "brech", "brach": "brech", "schlägt": "schlag", "schlug": "schlag", "fällt": "fall", "fiel": "fall",
    "hält": "halt", "hielt": "halt", "läuft": "lauf", "lief": "lauf", "tritt": "tret", "trat": "tret", "nimmt": "nehm",
    "nahm": "nehm", "gibt": "geb", "gab": "geb", "fährt": "fahr", "fuhr": "fahr", "lädt": "lad", "lud": "lad",
    "wirft": "werf", "warf": "werf", "ging": "geh", "stand": "steh", "zog": "zieh", "blieb": "bleib", "hing": "häng",
    "liest": "les", "las": "les", "lässt": "lass", "ließ": "lass", "schloss": "schließ", "griff": "greif",
    "weist": "weis", "wies": "weis", "löst": "lös", "rief": "ruf", "trägt": "trag", "trug": "trag",
}  # fmt: skip
"""Stems of verb forms with another vowel, or whose ending is part of the stem."""
_ABLAUT = {
    "broch": "brech", "bund": "bind", "fund": "find", "schrieb": "schreib", "schloss": "schliess", "nomm": "nehm",
    "griff": "greif", "stieg": "steig", "zog": "zieh", "blieb": "bleib", "wies": "weis", "schied": "scheid",
    "schob": "schieb", "hob": "heb", "verlor": "verlier", "troff": "treff", "worf": "werf", "sproch": "sprech",
    "trieb": "treib", "fror": "frier", "glich": "gleich", "riss": "reiss",
}  # fmt: skip
"""Stems of strong verbs by those of their participles, of which many nouns are made too (`Zugriff`, `Betrieb`)."""
_CHANGED = re.compile(f"(?:{'|'.join(_ABLAUT)})$")
_CLAUSE_END = re.compile(r"[.,;:?!\n]")
_TOKEN = re.compile(r"(?<![\w./:@=-])[\w./:@=-]*\w")
_VERB_ENDING = re.compile(r"(?:est|et|st|en|e|t)$")
_INFLECTED = re.compile(
    rf"({'|'.join(sorted(_PREFIXES))})(?:ge(\w{{3,}}(?:t|en)(?:e[mnrs]?)?)|zu(\w{{3,}}n))"
    r"|ge(?!brauch|dulde?t|fähr|fall|hör|lang|leit|nehm|nüg|raet|sell|stalt|statt|währ|wöhn)(\w{3,}t(?:e[mnrs]?)?)"
)
"""A past participle, or an infinitive with "zu" inside: `zurückgesetzt`, `zurückzusetzen`, `gesperrt`."""
_ENDING = re.compile(r"(?<=\w{4})(?:end|ung|t|e)$|(?<=\w{4})er$")
_LOAN = re.compile(r"(?:ge)?(\w{3,}?)(?:test|tes|te|t|en|e|st)")
"""A borrowed verb in a German form: `failt`, `gecrasht`, `restartet`."""
_NOUN = re.compile(r"(?:er[ns]?|ung|ungen)$")
"""Endings of nouns that are made of verbs and adjectives."""
_PLAIN = str.maketrans("äöü", "aou")
_DOUBLED = re.compile(r"(\w)\1$")
_LINKS = ("", "s", "es", "n", "en", "e", "er")
_LEAST = 4
"""Minimum letters of a part of a compound."""
_MOST = 64
"""Maximum letters of a compound; longer words are data."""
_SHARED_WORDS = frozenset(
    ("am", "an", "also", "bin", "da", "den", "des", "die", "in", "so", "war", "was", "man", "oder", "index", "alarm",
     "parallel", "version", "server", "name", "minute", "problem", "variable", "probe", "er", "hat", "um", "ja", "du",
     "alle", "als", "testen", "pro", "hin", "dir", "deren", "halt", "fast", "rein", "will", "ab", "system", "software",
     "standard", "post", "link", "filter", "tag", "normal", "rest", "position", "terminal", "alt", "fall", "falls",
     "alternative", "container", "transport", "minimal", "maximal", "signal", "hand", "symbol", "brand", "revision",
     "plan", "pause", "pin", "reserve", "personal", "warm", "stand", "rand", "material", "extern", "dialog", "brief",
     "analyse", "partner", "diagnose", "palette", "student", "virus", "turbine", "ton", "tor", "rat", "tot", "lack",
     "wand", "serie", "station", "kai")
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
            translations.setdefault(stem(word), {})[word] = tuple(english)
        else:
            stop_words.add(word)
    return frozenset(stop_words), translations


def _english_of_stem(word: str) -> tuple[str, ...] | None:
    """Return the translation of the longest known prefix with the same stem, else of all words of that stem."""
    known = _words()[1].get(stem(word))
    if known is None:
        return None
    plain = word.translate(_PLAIN)
    first = max((each for each in known if plain.startswith(each.translate(_PLAIN))), key=len, default=None)
    return known[first] if first else tuple(dict.fromkeys(each for of in known.values() for each in of))


@lru_cache(maxsize=8_000)
def is_german(text: str) -> bool:
    """Return whether a text is German: it has two German stop words, or three in ten of its words are German and one
    of them is a stop word, an everyday word or has an umlaut."""
    kinds = [_kind_of(word) for word in _WORD.findall(text.lower())]
    if sum(kind.is_stop_word for kind in kinds) >= 2:
        return True
    marked = sum(kind.marked for kind in kinds)
    has_common = marked + sum(kind.common for kind in kinds) >= 1
    return has_common and sum(kind.telling for kind in kinds) + marked >= 0.3 * len(kinds)


class _WordKind(NamedTuple):
    """Whether a word tells German from English, is a stop word or a stop or everyday word that does, and has a letter
    that English lacks."""

    telling: bool = False
    is_stop_word: bool = False
    common: bool = False
    marked: bool = False


@lru_cache(maxsize=20_000)
def _kind_of(word: str) -> _WordKind:
    if word in _SHARED_WORDS:
        return _WordKind()
    stop_words, translations = _words()
    common = word in stop_words or word in _everyday()[0]
    telling = common or stem(word) in translations
    return _WordKind(telling, word in stop_words, common, any(letter in word for letter in "äöüß"))


@cache
def _everyday() -> tuple[frozenset[str], frozenset[str]]:
    """Return the everyday words and their stems."""
    listed = files("counterpoint.developer.language").joinpath("everyday_german.txt").read_text(encoding="utf-8")
    return frozenset(listed.split()), frozenset(map(stem, listed.split()))


def is_everyday(word: str) -> bool:
    """Return whether a lower-case word is an everyday one or a form of it, such as of most verbs. Nouns that are made
    of them are none: `Läufer`, `Sicherung`."""
    words, stems = _everyday()
    return word in words or (stem(word) in stems and _NOUN.search(word) is None)


@cache
def known_stems() -> frozenset[str]:
    """Return the stems of the translated words."""
    return frozenset(_words()[1])


def is_listed(word: str) -> bool:
    """Return whether a lower-case word, or a form of it, has a translation of its own."""
    return stem(word) in _words()[1]


def stop_word(word: str) -> bool:
    """Return whether a word is a German stop word."""
    return word in _words()[0]


def is_particle(word: str) -> bool:
    """Return whether a lower-case word is a stop word or a prefix of verbs, which makes no compound noun."""
    return stop_word(word) or word in _PREFIXES or word in _INSEPARABLE


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the German stem of a lower-case word: that of Snowball, without the endings of verbs that it leaves and
    without the "ge" and "zu" of participles and infinitives, as CISTEM (Weissweiler and Fraser, 2017) has it. Strong
    verbs have one stem."""
    if len(word) > _MOST:
        return str(_STEMMER.stemWord(word))
    if (form := _INFLECTED.fullmatch(word)) is not None:
        word = f"{form[1] or ''}{form[2] or form[3] or form[4]}"
    found = str(_STEMMER.stemWord(_IRREGULAR.get(word, word)))
    while len(found) > _LEAST and (shorter := _ENDING.sub("", found)) != found:
        found = shorter
    return _CHANGED.sub(lambda form: _ABLAUT[form[0]], str(_STEMMER.stemWord(found)))


def _is_last_part(word: str) -> bool:
    """Return whether a known word may end a compound whose first part is unknown: it is listed as it is, or its stem is
    long enough to tell it from an ending ("einverst-anden")."""
    return len(stem(word)) >= _LEAST or word in _words()[1][stem(word)]


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
        if (last := _english_of_stem(lowered[cut:])) is not None and _is_last_part(lowered[cut:]):
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


@lru_cache(maxsize=8_000)
def separated_verbs(text: str) -> dict[str, str]:
    """Return the known verbs of a text whose prefix ends their clause: `bewahren` is `aufbewahren` in "Wie lange
    bewahren wir das auf?", `bricht` is `abbrechen` in "Warum bricht der Lauf ab?". Nouns, in capitals, are none."""
    found: dict[str, str] = {}
    for clause in _CLAUSE_END.split(text):
        *words, prefix = _LETTERS.findall(clause) or [""]
        for n, word in enumerate(words if prefix in _PREFIXES else ()):
            lowered = word.lower()
            if (n == 0 or lowered == word) and (verb := _separated_verb(lowered, prefix)) is not None:
                found[lowered] = verb
    return found


def _separated_verb(word: str, prefix: str) -> str | None:
    """Return the known verb of a form and its prefix, if there is one."""
    verb = f"{prefix}{_IRREGULAR.get(word) or _VERB_ENDING.sub('', word)}en"
    known = (word in _IRREGULAR or len(word) >= _LEAST) and _english_of_stem(verb) is not None
    return verb if known else None


def german_sequence(text: str) -> list[str]:
    """Return the lower-case words of a German text but stop words, with separated verbs joined to their prefixes."""
    verbs = separated_verbs(text)
    joined = {prefix for verb in verbs.values() for prefix in _PREFIXES if verb.startswith(prefix)}
    words = (word for word in _WORD.findall(text.lower()) if len(word) > 1 and not stop_word(word))
    return [verbs.get(word, word) for word in words if word not in joined]


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
