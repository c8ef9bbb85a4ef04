"""JSON in few bytes: without the text that many of its kind share, and with ids and hashes in binary.

A packed text begins with the number of a shared text, in one byte. An outline follows, with a character in the place of
each id and hash, and the UUIDs, deflated together; then hexadecimal ids, then hashes.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from enum import IntEnum

_UUID, _HEX, _BASE64 = "\x01", "\x02", "\x03"
"""Characters in the place of a UUID, 32 hexadecimal digits, and a hash in base64url. JSON escapes them in texts."""

_ID = re.compile("([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})|[0-9a-f]{32}")
_HASH = re.compile("[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
_ID_LENGTH, _HASH_LENGTH = 32, 43
"""Length of the shortest id, and of a hash, in characters."""
_BETWEEN = ",:[]{}"
"""Characters that begin what is between two strings, in which there are no ids."""
_PLACE = re.compile(f"[{_UUID}{_HEX}{_BASE64}]")
_END = b"\x00"
"""End of the outline."""
_STANDARD = str.maketrans("-_", "+/")

_DEFLATE = -12
"""Window of 4 KiB, without header and checksum: a leaf attests the text."""


class Shared(IntEnum):
    """Number of a shared text."""

    LEAF = 1
    ANSWERS = 2


_SHARED = {
    Shared.LEAF: (
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
    ),
    Shared.ANSWERS: (
        b'"graph","walk","episodic","cache","indexed","related","hybrid","aggregate","audit","as of",true,"next",'
        b'[["vector","exact",false,null,true,[["lexical","dense","cosine","lexical_z","cosine_z","rarest","coverage",'
        b'"by_words","by_meaning","by_name","by_fullness","by_exact_form"]],[[10,0.6,[0,0.0,0.26,0.26,0.0,3.4,5.8,0.0,0.0,'
        b"0.6,0.0,0.0,0.0]],[1,0.5,[0,0.0,0.2,0.2,0.0,2.8,0.0,0.0,0.5,0.0,0.0,0.0]]]],"
        b'["\x02\x02","record","list",false,null,true,[],[[0],[1],[2],[3],[4],[5],[6],[7],[8],[9]]],'
        b'["\x02\x02","record","list",false,null,true,[],[]]],'
        b'[[["\x02\x02","record","primary key",false,null,true,[],[[2]]],'
        b'["\x02\x02","record","primary key",false,null,true,[],[]]]]'
    ),
}
"""Shared texts. One that was in use is never changed."""


def pack(text: str, shared: Shared) -> bytes:
    """Return a text, which is JSON, packed with a shared text."""
    uuids, digits, hashes = bytearray(), bytearray(), bytearray()

    def place(found: re.Match[str]) -> str:
        if found.lastindex:
            uuids.extend(bytes.fromhex(found.group().replace("-", "")))
            return _UUID
        digits.extend(bytes.fromhex(found.group()))
        return _HEX

    parts = text.split('"')
    for n, part in enumerate(parts):
        if len(part) == _HASH_LENGTH and _HASH.fullmatch(part):
            hashes.extend(binascii.a2b_base64(part.translate(_STANDARD) + "="))
            parts[n] = _BASE64
        elif len(part) >= _ID_LENGTH and part[0] not in _BETWEEN:
            parts[n] = _ID.sub(place, part)
    outline = '"'.join(parts).encode()
    stream = zlib.compressobj(wbits=_DEFLATE, memLevel=5, zdict=_SHARED[shared])
    return bytes((shared,)) + stream.compress(outline + _END + uuids) + stream.flush() + digits + hashes


def unpack(packed: bytes) -> str:
    """Return a text from its packed form. Raises `ValueError` if it is damaged."""
    try:
        stream = zlib.decompressobj(wbits=_DEFLATE, zdict=_SHARED[Shared(packed[0])])
        outline, _, uuids = stream.decompress(packed[1:]).partition(_END)
    except (LookupError, zlib.error) as error:
        raise ValueError("a packed text is damaged") from error
    text, values = outline.decode(), stream.unused_data
    split = 16 * text.count(_HEX)
    if not stream.eof or len(uuids) != 16 * text.count(_UUID) or len(values) != split + 32 * text.count(_BASE64):
        raise ValueError("a packed text has too few ids and hashes, or too many")
    left = {_UUID: _uuids(uuids), _HEX: _digits(values[:split]), _BASE64: _hashes(values[split:])}
    return _PLACE.sub(lambda place: next(left[place.group()]), text)


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
        yield base64.urlsafe_b64encode(values[at : at + 32]).rstrip(b"=").decode()
