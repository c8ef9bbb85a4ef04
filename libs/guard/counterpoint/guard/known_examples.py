"""Known examples: keys that vendors publish as examples or defaults.

They are stored as prefixes of their SHA-256, so that this file has no key.
"""

import hashlib

_PUBLISHED: dict[str, str] = {
    "78314b11be2e581549ac1c4f616563fa": "the secret key beside AKIAIOSFODNN7EXAMPLE in the pages of AWS",
    "e21b597ba6b9cafa59d9ebc4d65c0385": "a second such key of AWS, AKIAI44QH8DHBEXAMPLE",
    "0011cc25eb4320717494d2703e8cba85": "the account key of Azurite, the emulator of Azure's storage",
    "aa6547439583c3a275d4542a0df6c1ad": "the key of the emulator of Azure's Cosmos DB",
    "b2f118c40ef943640d2d20929e4ed51c": "the default Fernet key of the community chart of Airflow",
    "f3c3964ca854e172366f81d8bdb327da": "the default secret key of Grafana",
    "3f7aa5c0b56cad6ccbfc84814cd4b16a": "the default secret key of Superset",
    "7f75367e7881255134e1375e723d1dea": "the token of jwt.io",
    "cf4d418ed3de92d71f767db5391d5a2d": "the credentials of RFC 7617",
    "6598ec97c37da4894da4b2facd69fc38": "the session token in the pages of AWS",
    "dd809f5450f17cfe269a552581255446": "the hash of `password` in the pages of MySQL",
    "22163fb65746d69b9a6998f85cead893": "the hash of `mypass` in the pages of MySQL",
    "bbf49348babe85e9a49f76b2d7785b86": "the hash of `newpass` in the pages of MySQL",
}
_CHARS_MIN = 16


def is_known_example(value: str) -> bool:
    """Whether `value`, with or without base64 padding, is a known example."""
    if len(value) < _CHARS_MIN:
        return False
    bare = value.rstrip("=")
    return any(_digest(f"{bare}{padding}") in _PUBLISHED for padding in ("", "=", "=="))


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:32]
