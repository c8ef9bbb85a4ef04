"""Cues: forms and nearby words that confirm the kind of a number: card, phone, personal id.

Logs contain counters, ranges and ids that have such a form by chance. The word directly before a number takes
precedence: `offset 4111...` is an offset. A word in a service name is not a cue.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

_CARD = """
card cards credit debit visa mastercard maestro amex jcb discover diners pan cvv cvc cardholder payment payments paid
pay charge charged checkout expiry expires kreditkarte karte kartennummer carte tarjeta
"""
_PHONE = """
phone phones telephone tel mobile cell fax pager paged sms whatsapp call called calling ring dial dialed dialled
contact contacts contacted reach reached hotline handy telefon mobil rufnummer telefono answer answered
texted number cellphone
"""
_STRONG_PHONE = frozenset(
    [
        "phone",
        "phones",
        "telephone",
        "tel",
        "mobile",
        "cell",
        "fax",
        "pager",
        "paged",
        "sms",
        "whatsapp",
        "hotline",
        "telefon",
    ]
)
_CUES: Mapping[str, frozenset[str]] = {
    "card": frozenset(_CARD.split()),
    "phone": frozenset(_PHONE.split()),
    "us_ssn": frozenset(["ssn", "social", "security", "taxpayer", "employee"]),
    "us_itin": frozenset(["itin", "taxpayer", "tax", "ssn"]),
    "uk_nhs": frozenset(["nhs", "health", "patient", "patients", "medical", "hospital", "gp"]),
    "es_nif": frozenset(["dni", "nif", "nie", "nif/nie", "identity", "documento", "passport"]),
    "sg_nric": frozenset(["nric", "fin", "identity", "passport"]),
    "in_aadhaar": frozenset(["aadhaar", "aadhar", "uidai", "uid"]),
    "pl_pesel": frozenset(["pesel"]),
    "au_tfn": frozenset(["tfn", "tax"]),
    "ethereum_address": frozenset(
        ["eth", "ether", "ethereum", "wallet", "wallets", "address", "addresses", "account", "contract"]
    ),
}
"""Words that confirm a number, by kind; other kinds are confirmed by their form."""
_COUNTED = """
offset offsets position pos lsn seq sequence txid tx xid zxid tid pid id ids uid gid inode fd job jobs run runs task
batch chunk chunks block blocks page pages slot slots segment segments part parts partition range ranges shard
shards bucket row rows record records line lines tuple tuples byte bytes size sizes count counter total sum length
len width epoch ts timestamp time time_ms us ns ms version build revision rev commit crc checksum hash digest
span trace parent request req session instance snapshot checkpoint watermark lag delta drift distance heap stack
memory read written wrote flushed scanned loaded inserted deleted processed received sent acked committed applied
start end from begin first last min max avg mean median quantile percentile histogram depth rate latency duration
elapsed term index idx key keys values value object objects entity entry entries node worker thread core cpu port
ports oldest newest xmin xmax relfrozenxid spill spilled extent extents volume attempt attempts retry retries
application container token tokens hugepages bits blks iops gauge metric samples sample
"""
_COUNTERS = frozenset(_COUNTED.split())
"""Words for machine counters."""

_FORMS: Mapping[str, re.Pattern[str]] = {
    "card": re.compile(r"\d{4}[- ].*"),
    "phone": re.compile(r"\+[\d(][\d()]*[ .-].+|(?:\+?1[ .-]?)?\(\d{2,5}\) ?\d.+"),
    "us_ssn": re.compile(r"\d{3}-\d{2}-\d{4}"),
    "us_itin": re.compile(r"\d{3}-\d{2}-\d{4}"),
    "es_nif": re.compile(r"[XYZ]-?\d{7}-?[A-Z]|\d{7,8}-[A-Za-z]"),
    "ethereum_address": re.compile(r"0x(?=.{0,39}[a-f])(?=.{0,39}[A-F]).+"),
}
"""Forms in which people, but not machines, write such a number."""

_BEFORE, _AFTER = 64, 32
_NAME_CHARS = 64
_TAG = re.compile(r"\[?redacted:[a-z0-9_]+(?::[0-9a-f]{16})?\]?")
"""A redaction tag, whose word is not a cue."""
_LABEL = re.compile(r"([A-Za-z][\w.-]{0,63})[\"']?\s{0,2}(?P<sign>[=:@]?)\s{0,2}[\"'(\[{]{0,2}$")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_ALONE = re.compile(r"(?<![\w./@-])[A-Za-z]+(?:/[A-Za-z]+)?(?![\w/@-]|\.\w)")


def is_confirmed(kind: str, text: str, start: int, end: int) -> bool:
    """Whether `text[start:end]`, found as `kind`, is confirmed by its form, by standing alone, or by a nearby word."""
    cues = _CUES.get(kind)
    if cues is None or text[:start].strip(" \"'") == text[end:].strip(" \"'") == "":
        return True
    form = _FORMS.get(kind)
    if form is not None and form.fullmatch(text[start:end]) is not None:
        return True
    before = _TAG.sub(" ", text[max(0, start - _BEFORE, text.rfind("\n", 0, start) + 1) : start])
    label = _LABEL.search(before)
    if label is not None:
        parts = {part.lower() for part in _PARTS.findall(label[1])}
        if label["sign"] and "-" not in label[1] and parts & cues:
            return True
        if parts & _COUNTERS and not parts & (_STRONG_PHONE if kind == "phone" else cues):
            return False
    line = text.find("\n", end)
    after = _TAG.sub(" ", text[end : min(line if line >= 0 else len(text), end + _AFTER)])
    return any(word.lower() in cues for beside in (before, after) for word in _ALONE.findall(beside))


def is_counter(name: str) -> bool:
    """Whether a mapping key names a machine counter. `id` does not: it may be a person's."""
    return _is_counter(name) if len(name) <= _NAME_CHARS else _is_counter.__wrapped__(name)


@lru_cache(maxsize=4096)
def _is_counter(name: str) -> bool:
    parts = {part.lower() for part in _PARTS.findall(name)}
    return bool(parts & _COUNTERS) and "id" not in parts and not any(parts & cues for cues in _CUES.values())
