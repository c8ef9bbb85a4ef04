"""A page, two relations that it states, and a reply of a model."""

import json
from typing import Any

PAGE = "The tides team owns harbour_tides. The job harbour_tides reads\ngauges.readings every morning."


OWNS = {
    "subject": "tides team",
    "relation": "owns",
    "object": "harbour_tides",
    "span": "The tides team owns harbour_tides.",
}


READS = {
    "subject": "harbour_tides",
    "relation": "consumes",
    "object": "gauges.readings",
    "span": "harbour_tides reads gauges.readings",
}


def model_reply(*relations: Any) -> str:
    """Return the answer of a model."""
    return json.dumps({"relations": relations})
