"""Kinds of values that questions ask for, and their patterns in texts. English and German."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of value. `asks` matches questions for it, `answers` matches texts with one. A question for a `strict`
    kind has no other answer."""

    name: str
    asks: re.Pattern[str]
    answers: re.Pattern[str]
    strict: bool = False


def _kind(name: str, asks: tuple[str, ...], answers: tuple[str, ...], strict: bool = False) -> Kind:
    flags = re.IGNORECASE | re.DOTALL
    return Kind(name, re.compile("|".join(asks), flags), re.compile("|".join(answers), flags), strict)


_PERIOD = (
    r"(?:ms|s|m|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|d|days?|weeks?|months?|years?"
    r"|sekunden?|minuten?|stunden?|tagen?|tage|wochen?|monaten?|monate|jahren?|jahre)"
)
_SPELLED_PERIOD = (
    r"(?:an?|half an|(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)"
    r"(?:[- ](?:one|two|three|four|five|six|seven|eight|nine))?"
    r"|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:(?:an?|one|two|three) )?hundred"
    r"|eine[nmrs]?|halbe|(?:(?:ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun)und)?"
    r"(?:zwanzig|drei(?:ß|ss)ig|vierzig|fünfzig|sechzig|siebzig|achtzig|neunzig)"
    r"|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|(?:drei|vier|fünf|sech|sieb|acht|neun)zehn"
    r"|(?:ein|zwei|drei)?hundert)"
    r" (?:seconds?|minutes?|hours?|days?|weeks?|months?|years?|sekunden?|minuten?|stunden?|tagen?|tag|wochen?|monaten?"
    r"|monate?|jahren?|jahre?)"
)
_NUMBER = (r"\d", r"\b(?:two|three|four|five|six|seven|eight|nine|ten|none|unlimited|zwei|drei|vier|fünf)\b")
KINDS = (
    _kind(
        "secret",
        (r"(?:^\W*what|\bwhat(?:['’]s| is| are)) (?:the |our )?(?:\w+ ){0,2}"
         r"(?:password|passphrase|token|secret|api key)\b",
         r"^\W*(?:the |our )?(?:\w+ ){0,2}(?:password|passphrase|api key) (?:of|for)\b",
         r"\bwie (?:lautet|ist) .{0,30}(?:passwort|kennwort|schlüssel)\b",
         r"^\W*(?:passwort|kennwort) (?:von|für|de[rs])\b"),
        (r"(?!)",), strict=True,
    ),
    _kind(
        "moment",
        (r"\b(?:who|which|what|where|when|how (?:many|much))\b[^.?!]{0,200}\b(?:right now|at the moment|tonight"
         r"|this (?:very )?(?:minute|moment)|most recently|(?:the )?last time)\b",
         r"\bwhen did (?:we|somebody|anybody|you)\b",
         r"^\W*(?:is|are) [^?\n]{1,80} (?:right now|at the moment|currently)\W*$",
         r"^\W*(?:ist|sind) [^?\n]{1,80} (?:gerade|derzeit|momentan|zurzeit) \w+\W*$",
         r"\bwho\b[^?!\n]{0,60}\b(?:on[- ]call|on duty|on shift)\b[^?!\n]{0,60}"
         r"\b(?:now|today|tomorrow|(?:this|next) (?:week|weekend|month|shift))\b",
         r"\bwer\b[^?!\n]{0,60}\b(?:bereitschaft|dienst)\b[^?!\n]{0,60}"
         r"\b(?:jetzt|heute|morgen|(?:diese|nächste)[ns]? (?:woche|wochenende|monat|schicht))\b",
         r"\bwer\b[^?!\n]{0,60}\b(?:jetzt|heute|morgen|(?:diese|nächste)[ns]? (?:woche|wochenende|monat|schicht))\b"
         r"[^?!\n]{0,60}\b(?:bereitschaft|dienst)\b",
         r"\b(?:wer|welche\w?|was|wo|wann|wie ?viele?)\b[^.?!]{0,200}\b(?:gerade|derzeit|momentan|zurzeit"
         r"|heute nacht|zuletzt|das letzte mal)\b"),
        (r"(?!)",), strict=True,
    ),
    _kind(
        "phone",
        (r"\b(?:phone|telephone|mobile|pager|hotline)(?: |-)?(?:number|no\b|extension)",
         r"\b(?:telefon|handy|mobil|ruf|pager|hotline)(?:-)?nummer\b|\bdurchwahl\b"),
        (r"(?<![\w.])\+?\d(?:[ ()/.-]{0,2}\d){4,}(?![\w.]\d)",
         r"\b(?:ext(?:ension)?|durchwahl|dial|call)\b\W{0,3}\d{2,}"),
        strict=True,
    ),
    _kind(
        "contact",
        (r"\bwhom? (?:\w+ ){0,3}(?:page|call|phone|wake|notify|contact|escalate to|reach out to|reach)\b",
         r"\bwhom? (?:is|are|has) (?:\w+ ){0,2}(?:on[- ]call|on duty)\b",
         r"\bwen (?:\w+ ){0,3}(?:anrufen|wecken|benachrichtigen|verständigen|kontaktieren)\b",
         r"\bwer hat (?:\w+ )?bereitschaft\b"),
        (r"@", r"#[a-z]",
         r"\b(?:team|on-?call|pager|rota|escalat\w+|phone|hotline|bereitschaft|rufnummer)\b",
         r"\b(?:ext(?:ension)?|bleep|durchwahl|radio|switchboard|helpdesk|duty|leitwarte|leitstelle|zentrale|pforte)\b"),
        strict=True,
    ),
    _kind(
        "region",
        (r"\b(?:which|what|in welche[rmn]?|welche) (?:\w+ )?"
         r"(?:region|availability zone|data ?cent(?:er|re)|rechenzentrum)\b",),
        (r"\b(?:region|zone|data ?cent(?:er|re)|rechenzentrum)\w*\b.{0,20}(?:\bis\b|\bist\b|[:=|])",
         r"\b(?:in|stands in|located in) (?:the )?(?:region|zone)\b",
         r"\b[a-z]{2,}-(?:north|south|east|west|central)\w*"),
        strict=True,
    ),
    _kind(
        "port",
        (r"\b(?:which|what) .{0,20}\bport\b", r"\bwelche[rnm]? .{0,20}\bport\b"),
        (r"\bport\b.{0,40}?\d{2,5}", r"\b\d{4,5}; [^:;\n]{1,30}: [^;\n]{0,20}\bport\b",
         r"[a-z\])]:\d{2,5}\b", r":\d{4,5}\b", r"\d{2,5}/(?:tcp|udp)"), strict=True,
    ),
    _kind(
        "version",
        (r"\b(?:which|what) .{0,30}version", r"\bwelche .{0,20}version"),
        (r"\bv?\d+\.\d+", r"\bversion \d"), strict=True,
    ),
    _kind(
        "price",
        (r"\b(?:cost|costs|price|how expensive|kostet|\w{0,30}preis)\b",),
        (r"[$€£]\s?\d", r"\d\s?(?:USD|EUR|dollars?|euros?|cents?|%)"), strict=True,
    ),
    _kind(
        "period",
        (r"\bhow long\b", r"\bwie lange\b"),
        (rf"\b\d[\d.,]{{0,30}}\s?-?{_PERIOD}\b", rf"\b{_SPELLED_PERIOD}\b",
         r"\b(?:forever|indefinitely|permanently|unlimited|daily|weekly|monthly|nightly|yearly"
         r"|dauerhaft|unbegrenzt|täglich|wöchentlich|monatlich|jährlich|nächtlich)\b",
         r"\b(?:never|nie|niemals) (?:be )?(?:expires?|ends?|times? out|deleted|removed|purged|dropped|gelöscht"
         r"|entfernt)\b",
         r"\b(?:kept|stored|held|retained|remain\w*|stay\w*|live\w*|last\w*|valid|bleib\w*|aufbewahrt|gültig)\b[^.]{0,40}"
         r"\b(?:until|till|as long as|bis|solange)\b",
         r"\bPT?\d+[WDHMS]\b",
         r"\w_(?:ms|s|secs?|seconds|mins?|minutes|h|hours|d|days)\b[^\n]{0,40}\d",
         r"(?:timeout|ttl|retention|interval|seconds|minutes|hours|days|tage|stunden|minuten|sekunden)[\w.]{0,40}['\"`]{0,3}"
         r"\s{0,4}[:=;|]\s{0,4}(?:[\w ]{1,20}: )?['\"`]?\d"),
        strict=True,
    ),
    _kind(
        "frequency",
        (r"\bhow often\b", r"\bwie oft\b"),
        (r"\b(?:every|per|alle|jede[nmrs]?|pro|je) \w", r"\binterval",
         r"\b(?:once|twice|times|einmal|zweimal|mal) (?:per|an?|every|pro|je|i[nm]|am)\b",
         r"\b(?:hourly|daily|(?:fort)?nightly|(?:bi)?weekly|monthly|quarterly|yearly|annual(?:ly)?|continuously|never|nie"
         r"|(?:stünd|täg|nächt|wöchent|monat|jähr)lich\w*|regelmäßig|regularly)\b",
         r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days|(?:mon|diens|donners|frei|sams|sonn)tags|mittwochs)\b"),
        strict=True,
    ),
    _kind(
        "duration",
        (r"\bhow (?:soon|old)\b", r"\bhow many (?:seconds|minutes|hours|days|weeks|months)\b",
         r"\b(?:timeout|ttl|interval|retention)\b", r"\bwie bald\b",
         r"\bwie viele (?:sekunden|minuten|stunden|tage|wochen)"),
        (rf"\b\d[\d.,]{{0,30}}\s?-?{_PERIOD}\b", rf"\b{_SPELLED_PERIOD}\b",
         rf"\b(?:once|twice|times|einmal|zweimal|mal) (?:per|an?|every|pro|je) {_PERIOD}\b",
         r"\b(?:hourly|daily|weekly|monthly|nightly|every|immediately|never|täglich|stündlich|wöchentlich|nächtlich)\b",
         r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days|(?:mon|diens|donners|frei|sams|sonn)tags|mittwochs)\b",
         r"(?:timeout|ttl|retention|interval|seconds|minutes|hours|days)\w{0,40}['\"]?\s{0,4}[:=]\s{0,4}['\"]?\d"),
    ),
    _kind("count", (r"\bhow many\b", r"\bwie ?viele\b"), _NUMBER, strict=True),
    _kind(
        "number",
        (r"\bhow (?:much|big|large|high|far)\b", r"\bdefault\b", r"\bwie ?viel\b", r"\bwie (?:hoch|groß)\b",
         r"\blimit\b"),
        _NUMBER,
    ),
    _kind(
        "person",
        (r"\b(?:who|whom|whose|owner|owns|owned|wer|wem|wen|wessen|zuständig|verantwortlich|besitzer)\b",
         r"\bwhich (?:team|group|squad|department)\b", r"\bwelche[sr]? (?:team|gruppe|abteilung)\b"),
        (r"@", r"\b(?:team|owner|owned|on-?call|contact|responsible|users?|admins?|administrators?)\b",
         r"\b(?:operators?|engineers?|lead|group|squad|you|office|zuständig|verantwortlich|bereitschaft)\b",
         r"\b(?:mr|mrs|ms|dr|frau|herrn?)\b\.? \w",
         r"\b(?:department|managers?|controller|coordinator|supervisor|technician|assistant|officer|director|nurse|staff"
         r"|crew|\w*(?:stelle|abteilung|leitung|leiter(?:in)?|führung|dienst|beratung|amt|kraft|meister(?:in)?"
         r"|beauftragter?|büro))\b"),
    ),
    _kind(
        "time",
        (r"\b(?:when|what time|wann|um wie viel uhr)\b",),
        (r"\b\d{1,2}[:.]\d\d\b", r"\b\d{1,2} ?(?:[ap]\.?m\b|uhr\b|o'clock\b)",
         r"\b(?:noon|midnight|mittags?|mitternachts?)\b",
         r"\b(?:after|before|if|when|once|daily|nightly|wenn|nach|vor|täglich)\b"),
    ),
)  # fmt: skip
PERMISSION = re.compile(
    r"^\W*(?:can|may|could|should|shall|must|is|are|do|does|am|was|were|will|would|has|have|darf|dürfen|kann|können"
    r"|soll|sollen|muss|müssen|ist|sind|gibt|wird|werden)\b"
    r"|\b(?:can|may|should) (?:i|we|you|one|they|the)\b"
    r"|\b(?:ok(?:ay)?|allowed|safe|permitted|supported|good enough|erlaubt|zulässig)\b",
    re.IGNORECASE,
)
"""Yes-or-no questions."""
OURS = re.compile(
    r"\b(?:who|which|what|where|when|how (?:many|much|big|large))\b[^?]{0,200}?"
    r"\b(?:(?:do|did|are|have) we (?:have|had|run|running|keep|pay|paying|own|host|hosting|store)\b(?! to\b)"
    r"|(?:is|are|was|were) (?:the (?:\w+ ){1,5}(?:of|for|in|on) )?our\b|(?:do|does|did|have|has|will) our\b)"
    r"|\bbei uns\b|\bhaben wir\b"
    r"|\b(?:ist|sind|liegen|laufen|steht|stehen|haben|hat|nutzen|verwenden|fahren) unsere?\b",
    re.IGNORECASE,
)
"""Questions about the asker's own organisation, which no vendor manual answers."""
OWN = re.compile(r"\b(?:our|ours|unser\w*|on-?call|team[- ]\w+|\w+ team)\b", re.IGNORECASE)
"""Pages about the own organisation."""
OWNERSHIP = re.compile(
    r"\bwho (?:\w+ ){0,2}?(?:owns?|maintains?)\b|\bowned by\b"
    r"|\bwhose (?:is|are|was|were|dag|table|data ?set|pipeline|model|flow|topic)\b"
    r"|\b(?:owners?|maintainers?) (?:of|for|behind)\b|\bwho (?:is|are) (?:the |an? )?(?:owners?|maintainers?)\b"
    r"|\bwhich (?:team|group|squad) (?:owns|maintains)\b|\bwho is (?:responsible|accountable) for\b"
    r"|\bwem gehör\w*|\bwer (?:besitzt|betreut|verantwortet)\b|\bwelches team (?:besitzt|betreut|verantwortet)\b"
    r"|\bwer ist\b.{0,200}\b(?:zuständig|verantwortlich)\b|\b(?:besitzer|eigentümer)(?:in)?\b",
    re.IGNORECASE | re.DOTALL,
)
"""Questions for the owner of something."""
DEFAULT = re.compile(r"\b(?:defaults?|vorgabe|standardwert|voreinstellung)\b", re.IGNORECASE)
"""Questions for a default, and texts with one."""


def kind_of(text: str) -> Kind | None:
    """Return the kind that a question asks for, if any; of several questions the last one with a kind counts."""
    for question in reversed([part for part in text.split("?") if part.strip()]):
        for kind in KINDS:
            if kind.asks.search(question):
                return kind
    return None
