"""Bodies of leaves as they are stored: without the text that leaves share, and with ids and hashes in binary.

A packed body has `placed`, three integers of 8 bytes, the number of a shared text in one byte, and the rest: an outline
with a character in the place of each id and hash, and the UUIDs, deflated together; then hexadecimal ids, then hashes.
Leaves of erasures, which the database reads itself, and of refusals are stored as text.
"""

import binascii
import re
import struct
import zlib
from collections.abc import Iterator

from counterpoint.memory.audit.leaf_body import encoded

_UUID, _HEX, _BASE64 = "\x01", "\x02", "\x03"
"""Characters in the place of a UUID, 32 hexadecimal digits, and a hash in base64url. JSON escapes them in texts."""

_ID = re.compile("([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})|[0-9a-f]{32}")
_HASH = re.compile("[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
_ID_LENGTH, _HASH_LENGTH = 32, 43
"""Length of the shortest id, and of a hash, in characters."""
_PLACE = re.compile(f"[{_UUID}{_HEX}{_BASE64}]")
_END = b"\x00"
"""End of the outline."""
_ERASURE = '"erased":{'
"""Part of the leaf of an erasure alone: in a text the quotes would be escaped."""

_HEAD = struct.Struct(">qqqB")
_DEFLATE = -12
"""Window of 4 KiB, without header and checksum: the leaf attests the body."""

_SHARED = {
    1: (
        b',"done"],"cancels":["]]},"erased":{"principal":"person","redacted":[["read_set":[null,"\x03","\x03"],'
        b'[[null,"memory",0,1,1,false,true"step":"mentions","task":null,"tasks":[],"writes":[["documents","chunks","plans'
        b'"approvals","attempts","timers","spend","model_calls","checkpoints","calibration","judge_memory","planner_memory'
        b'"coder_memory","webhook_deliveries","principals","runs","datasets","entities","\x02","relationships","\x02'
        b'"incidents","sessions","edges","data-\x02",1,"\x03",0],["jobs","counterpoint/\x01",1,"\x03",0]]}'
        b'","counterpoint.decision.made.v1","\x03","counterpoint.approval.requested.v1","counterpoint.task.due.v1"'
        b',"counterpoint.task.overridden.v1","counterpoint.outcome.reported.v1","counterpoint.task.failed.v1"'
        b',"counterpoint.task.proposed.v1","counterpoint.task.escalated.v1","counterpoint.task.completed.v1"'
        b',"counterpoint.records.changed.v1","counterpoint.task.resumed.v1","counterpoint.task.submitted.v1"'
        b',"counterpoint.task.routed.v1","counterpoint.task.delegated.v1","counterpoint.task.worked.v1"'
        b'"at":"2026-11-27T00:00:00.000000+00:00","commit":"\x01","inbox":[true,1,"done"],"message":"\x01","messages":['
        b'["\x01","counterpoint.decision.made.v1",0,1],["\x01","counterpoint.decision.made.v1",1,1]],'
        b'"principal":null,"project":"default","read_set":["\x01","\x03","\x03"],"service":"lineage","service":"router",'
        b'"service":"manager","service":"developer","stamps":[[0,"coder","judge",2,2,1],[0,"developer",1,1,1],'
        b'[0,"tasks..completed",["router"],1,1,null,null,false,true],[0,"changes..manager",["lineage"],'
        b'[0,"decisions..developer",[],1,1,null,null,false,false]],"step":"done","task":"\x01","tasks":["\x01"],"writes":['
        b'["submissions","task:\x01",1,"\x03",0],["submissions","request:\x02\x02",1,"\x03",0],["tasks","\x01",1,"\x03",0],'
        b'["decisions","\x01",1,"\x03",0],["decisions","\x01",1,"\x03",0],["actions","\x01",1,"\x03",0],'
        b'["actions","\x01",1,"\x03",0]]}'
    )
}
"""Texts that leaves share, by number. One that was in use is never changed."""
_CURRENT = max(_SHARED)
_STANDARD = str.maketrans("-_", "+/")


def packed_leaf(body: str) -> bytes | None:
    """Return the body of a commit's leaf as it is stored, without `placed`, which the database puts before it.

    Returns None for one that is stored as text.
    """
    if _ERASURE in body:
        return None
    uuids, digits, hashes = bytearray(), bytearray(), bytearray()

    def place(found: re.Match[str]) -> str:
        if found.lastindex:
            uuids.extend(bytes.fromhex(found.group().replace("-", "")))
            return _UUID
        digits.extend(bytes.fromhex(found.group()))
        return _HEX

    texts = body.split('"')
    for n, text in enumerate(texts):
        if len(text) == _HASH_LENGTH and _HASH.fullmatch(text):
            hashes.extend(binascii.a2b_base64(text.translate(_STANDARD) + "="))
            texts[n] = _BASE64
        elif len(text) >= _ID_LENGTH:
            texts[n] = _ID.sub(place, text)
    outline = '"'.join(texts).encode()
    stream = zlib.compressobj(wbits=_DEFLATE, memLevel=5, zdict=_SHARED[_CURRENT])
    return b"".join(
        (
            bytes((_CURRENT,)),
            stream.compress(outline + _END + uuids),
            stream.flush(),
            digits,
            hashes,
        )
    )


def leaf_text(body: str | None, packed: bytes | None) -> str | None:
    """Return the body of a leaf from the columns of its row, None if it was erased.

    What cannot be unpacked is an empty text, which no leaf attests.
    """
    if packed is None:
        return body
    try:
        return _text(packed) if body is None else ""
    except (ValueError, LookupError, struct.error, zlib.error):
        return ""


def _text(packed: bytes) -> str:
    *placed, number = _HEAD.unpack_from(packed)
    stream = zlib.decompressobj(wbits=_DEFLATE, zdict=_SHARED[number])
    outline, _, uuids = stream.decompress(packed[_HEAD.size :]).partition(_END)
    text, values = outline.decode(), stream.unused_data
    split = 16 * text.count(_HEX)
    if not stream.eof or len(uuids) != 16 * text.count(_UUID) or len(values) != split + 32 * text.count(_BASE64):
        raise ValueError("the packed body of a leaf has too few values or too many")
    left = {_UUID: iter(_uuids(uuids)), _HEX: iter(_digits(values[:split])), _BASE64: iter(_hashes(values[split:]))}
    whole = _PLACE.sub(lambda place: next(left[place.group()]), text)
    return f'{{"placed":[{placed[0]},{placed[1]},{placed[2]}],{whole[1:]}'


def _uuids(values: bytes) -> Iterator[str]:
    digits = values.hex()
    for at in range(0, len(digits), 32):
        one = digits[at : at + 32]
        yield f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}"


def _digits(values: bytes) -> Iterator[str]:
    for at in range(0, len(values), 16):
        yield values[at : at + 16].hex()


def _hashes(values: bytes) -> Iterator[str]:
    for at in range(0, len(values), 32):
        yield encoded(values[at : at + 32])
