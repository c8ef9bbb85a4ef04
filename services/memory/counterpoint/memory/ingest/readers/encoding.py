"""Bytes to text: UTF-8, or UTF-16 with its byte order mark, without guessing."""

import codecs
import re

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PROBE_BYTES = 8192
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}["']?\s{0,9}([\w.:-]{1,40})""", re.IGNORECASE)
_HEAD_BYTES = 1024


def decoded(content: bytes, *, html: bool = False) -> str:
    """Return the text of some bytes. HTML may declare its encoding at its beginning. Raises `Permanent` for binary
    content, and for an encoding that is not known for certain."""
    if content.startswith(_MARKS):
        return _strictly(content, "utf-16")
    if b"\0" in content[:_PROBE_BYTES]:
        raise Permanent(ErrorCode.BINARY, (Problem(field="content", problem="is binary, of an unsupported format"),))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        declared = _CHARSET.search(content[:_HEAD_BYTES]) if html else None
        if declared is None:
            raise _no_encoding("is neither UTF-8 nor UTF-16 with a byte order mark") from None
        return _strictly(content, declared[1].decode())


def _strictly(content: bytes, encoding: str) -> str:
    try:
        codecs.lookup(encoding)
        return content.decode(encoding)
    except (LookupError, UnicodeError) as error:
        raise _no_encoding(f"is not in its declared encoding, {encoding}") from error


def _no_encoding(problem: str) -> Permanent:
    return Permanent(ErrorCode.ENCODING, (Problem(field="content", problem=problem),))
