"""Kinds of findings, the class by which the policy judges each, and their names for people."""

from typing import Literal, get_args

Span = tuple[int, int]
"""Start and end offsets in a text."""

Class = Literal["secret", "uncertain", "financial", "identity", "contact", "network"]
"""Secrets; possible secrets; payment and account numbers; personal ids; contact data; network addresses."""
CLASSES: tuple[Class, ...] = get_args(Class)

_CLASS: dict[str, Class] = {
    **dict.fromkeys(("generic_api_key", "sourcegraph_access_token", "uri_word"), "uncertain"),
    **dict.fromkeys(("card", "iban", "bitcoin_address", "ethereum_address"), "financial"),
    **dict.fromkeys(
        (
            *("us_ssn", "us_itin", "uk_nhs", "es_nif", "it_fiscal_code", "sg_nric", "in_aadhaar", "pl_pesel"),
            *("au_tfn",),
        ),
        "identity",
    ),
    **dict.fromkeys(("email", "phone"), "contact"),
    **dict.fromkeys(("ip_address", "mac_address"), "network"),
}

_LETTERS = frozenset(["aws", "gcp", "jwt", "uri", "api", "iban", "us", "uk", "es", "sg", "in", "pl", "au", "it"]) | {
    *("ssn", "itin", "nhs", "nif", "nric", "tfn", "ip", "mac", "pat", "ssh", "url", "pypi", "npm", "cicd", "lob", "id")
}
_SPOKEN_AS_WORDS = frozenset(["pypi", "pesel", "pat", "mac"])
_NAMES = {"assignment": "password or key", "card": "payment card number", "email": "e-mail address"}
_NAMES |= {"phone": "phone number", "jwt": "JWT", "basic_auth": "basic authentication", "bearer": "bearer token"}
_NAMES |= {
    "uri_password": "password in an address",
    "uri_word": "word as a password in an address",
    "in_aadhaar": "Aadhaar number",
    "pl_pesel": "PESEL number",
}


def class_of(kind: str) -> Class:
    """Return the class of a kind; by default `secret`."""
    return _CLASS.get(kind, "secret")


def kind_name(kind: str) -> str:
    """Return the name of a kind with its article: `an AWS access key`."""
    words = _NAMES.get(kind) or " ".join(w.upper() if w in _LETTERS else w for w in kind.split("_"))
    first = words.split()[0]
    if first.isupper() and first.lower() not in _SPOKEN_AS_WORDS:
        return f"{'an' if first[0] in 'AEFHILMNORSX' else 'a'} {words}"
    return f"{'an' if first[0] in 'aeioAEIO8' else 'a'} {words}"


NUMBERS = frozenset({"financial", "identity", "contact", "network"})
"""Classes whose findings are mostly numbers."""
