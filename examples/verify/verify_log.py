#!/usr/bin/env python3
"""Check Counterpoint's audit log without Counterpoint: this file and Python's standard library are all that it needs.

    verify_log.py --key KEY PROOFS.json                     proofs: `counterpoint verify --task TASK --json`
    verify_log.py --key KEY --checkpoint FILE LEAVES.jsonl  the whole log: `counterpoint verify --export LEAVES.jsonl`

KEY is the verifier key, as whoever runs the log has published it (name+hash+base64). Says yes, or no and why; the exit
code is 0 or 1. Formats: RFC 6962 tree, C2SP signed-note and tlog-checkpoint, RFC 8032 Ed25519.
"""

import argparse
import base64
import hashlib
import json
import sys

P = 2**255 - 19
D = -121665 * pow(121666, P - 2, P) % P
ORDER = 2**252 + 27742317777372353535851937790883648493


def recover(y, sign):
    """The x of a point of the curve."""
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P or (x == 0 and sign):
        raise ValueError("no point of the curve")
    return P - x if x & 1 != sign else x


def point(raw):
    y = int.from_bytes(raw, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= P:
        raise ValueError("no point of the curve")
    x = recover(y, sign)
    return x, y, 1, x * y % P


def plus(a, b):
    m, n = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    o, q = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = n - m, q - o, q + o, n + m
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(number, a):
    result = (0, 1, 1, 0)
    while number:
        result, a, number = plus(result, a) if number & 1 else result, plus(a, a), number >> 1
    return result


def signed(public, text, signature):
    """Whether an Ed25519 signature is good."""
    if len(public) != 32 or len(signature) != 64:
        return False
    s = int.from_bytes(signature[32:], "little")
    if s >= ORDER:
        return False
    y = 4 * pow(5, P - 2, P) % P
    x = recover(y, 0)
    try:
        left, right = times(s, (x, y, 1, x * y % P)), point(public)
        h = int.from_bytes(hashlib.sha512(signature[:32] + public + text).digest(), "little") % ORDER
        right = plus(point(signature[:32]), times(h, right))
    except ValueError:
        return False
    return not (left[0] * right[2] - right[0] * left[2]) % P and not (left[1] * right[2] - right[1] * left[2]) % P


def checkpoint(note, key):
    """Size and root of a signed note. Raises `ValueError` unless this key signed it."""
    name, _, rest = key.partition("+")
    digest, _, encoded = rest.partition("+")
    public = base64.b64decode(encoded, validate=True)
    if hashlib.sha256(name.encode() + b"\n" + public).hexdigest()[:8] != digest or public[:1] != b"\x01":
        raise ValueError("the key is no Ed25519 verifier key")
    text, _, signatures = note.partition("\n\n")
    lines = text.split("\n")
    if len(lines) != 3 or lines[0] != name or not lines[1].isdecimal() or str(int(lines[1])) != lines[1]:
        raise ValueError("the note is no checkpoint of this log")
    for line in signatures.split("\n"):
        dash, _, rest = line.partition(" ")
        signer, _, encoded = rest.partition(" ")
        if (dash, signer) == ("\u2014", name):
            raw = base64.b64decode(encoded, validate=True)
            if raw[:4].hex() == digest and signed(public[1:], text.encode() + b"\n", raw[4:]):
                root = base64.b64decode(lines[2], validate=True)
                if base64.b64encode(root).decode() == lines[2] and base64.b64encode(raw).decode() == encoded:
                    return int(lines[1]), root
    raise ValueError("the checkpoint is not signed by this key")


def unhex(text):
    raw = bytes.fromhex(text)
    if raw.hex() != text:
        raise ValueError("a hash is written in another way than it is given out")
    return raw


def commitment(leaf):
    """Return the hash of a leaf, recomputed from its content unless it is another project's or was erased."""
    stated = unhex(leaf["leaf"])
    if not {"index", "leaf"} <= set(leaf) <= {"index", "leaf", "salt", "previous", "body", "path"}:
        raise ValueError("a leaf has other parts than it is given out with")
    content = [leaf[name] for name in ("body", "salt", "previous")] if set(leaf) - {"index", "leaf"} else [None]
    if content[0] is not None:
        body, salt, previous = content[0].encode(), unhex(content[1]), unhex(content[2] or "")
        if hashlib.sha256(salt + previous + body).digest() != stated:
            raise ValueError(f"leaf {leaf['index'] + 1} is not what its hash says")
    return stated


def node(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


def climb(leaf, size):
    """The root that a leaf's path leads to (RFC 9162, 2.1.3.2)."""
    index, last, root = leaf["index"], size - 1, hashlib.sha256(b"\x00" + commitment(leaf)).digest()
    if not 0 <= index <= last:
        raise ValueError(f"leaf {index + 1} is not in the tree")
    for sibling in map(unhex, leaf["path"]):
        if not last:
            raise ValueError("the path is too long")
        if index & 1 or index == last:
            root = node(sibling, root)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            root = node(root, sibling)
        index, last = index >> 1, last >> 1
    if last:
        raise ValueError("the path is too short")
    return root


def root_of(leaves):
    """The root over leaves in their order, and how many there are."""
    stack, size = [], 0
    for leaf in leaves:
        if leaf["index"] != size:
            raise ValueError(f"leaf {size + 1} is missing")
        above, size, count = hashlib.sha256(b"\x00" + commitment(leaf)).digest(), size + 1, size + 1
        while not count & 1:
            above, count = node(stack.pop(), above), count >> 1
        stack.append(above)
    root = stack.pop() if stack else hashlib.sha256().digest()
    while stack:
        root = node(stack.pop(), root)
    return root, size


def check_proofs(found, key):
    """Check proofs; return the result in words. Raises `ValueError`, `KeyError` or `TypeError` if they fail."""
    found = found.get("proofs", found)
    size, root = checkpoint(found["checkpoint"], key)
    parts = {"key", "checkpoint", "size", "leaves"}
    if (found["key"], found["size"], set(found) - parts) not in ((key, size, set()), (key, size, {"next"})):
        raise ValueError("the proofs are by another key or checkpoint")
    if found.get("next") is not None:
        raise ValueError("these are the first of more proofs")
    previous = None
    for leaf in found["leaves"]:
        if climb(leaf, size) != root:
            raise ValueError(f"leaf {leaf['index'] + 1} is not in the tree")
        if leaf["previous"] is not None and previous is not None and leaf["previous"] != previous:
            raise ValueError(f"leaf {leaf['index'] + 1} does not follow the one before it")
        previous = leaf["leaf"]
    return f"{len(found['leaves'])} leaves are in the log of {size}"


def check_leaves(lines, notes, key):
    """Check a whole log; return the result in words. Raises like `check_proofs`."""
    parts = notes.rstrip("\n").split("\n")
    note = "\n".join(parts[-5:]) + "\n"
    size, root = checkpoint(note, key)
    leaves = [json.loads(line) for line in lines]
    if len(leaves) < size:
        raise ValueError(f"there are {len(leaves)} leaves, the checkpoint is of {size}")
    if root_of(leaves[:size])[0] != root:
        raise ValueError("the leaves are not those of the checkpoint")
    return f"the first {size} of {len(leaves)} leaves are those of the checkpoint"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--key", required=True)
    parser.add_argument("--checkpoint", help="a file of checkpoints; the last one counts")
    given = parser.parse_args()
    try:
        with open(given.file, encoding="utf-8") as file:
            if given.checkpoint:
                with open(given.checkpoint, encoding="utf-8") as notes:
                    said = check_leaves(file, notes.read(), given.key)
            else:
                said = check_proofs(json.load(file), given.key)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"no: {error}")
        return 1
    print(f"yes: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
