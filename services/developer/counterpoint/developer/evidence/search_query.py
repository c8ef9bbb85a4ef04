"""Search queries for documents."""

from counterpoint.proto.messages import Shape

QUERY_CHARS = 2_000
"""Maximum length of a searched text."""


class SearchQuery(Shape):
    """A text to search for, against which results are graded, and other wordings or parts of it. `why` is empty for the
    original question."""

    text: str
    also: tuple[str, ...] = ()
    why: str = ""
