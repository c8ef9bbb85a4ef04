"""Assert that chunks cover a text."""

from counterpoint.memory.ingest.chunk import ChunkedDocument


def assert_nothing_lost(source: str, chunked: ChunkedDocument, max_chars: int) -> None:
    """Assert that chunks are within the limit, in order, and leave out only white space."""
    at = 0
    for piece in chunked.chunks:
        assert source[piece.start : piece.end] == piece.text
        assert piece.start >= at
        assert source[at : piece.start].strip() == ""
        assert 0 < len(piece.text) <= max_chars
        assert piece.text.strip()
        at = piece.end
    assert source[at:].strip() == ""
