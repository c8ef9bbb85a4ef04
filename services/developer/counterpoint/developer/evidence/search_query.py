"""The texts that documents are searched for."""

from counterpoint.proto.messages import Shape

QUERY_CHARS = 2_000
"""Characters of a text that a search looks at, at most."""


class SearchQuery(Shape):
    """A text to search for, by which results are graded, and other wordings or parts of it. `why` is empty for the
    question in its own words."""

    text: str
    also: tuple[str, ...] = ()
    why: str = ""
