"""Read a document that is refused."""

import pytest

from counterpoint.memory.ingest.readers import read
from counterpoint.proto.errors import Permanent
from counterpoint.proto.ingest import ContentType


def refused(name: str, given: str | bytes, type: ContentType | None = None) -> tuple[str, str]:
    """The field and the problem that a document is refused with."""
    with pytest.raises(Permanent) as error:
        read(name, given, type)
    (problem,) = error.value.problems
    return problem.field, problem.problem
