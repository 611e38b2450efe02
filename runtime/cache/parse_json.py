"""JSON that may be anything."""

from __future__ import annotations

import json
from typing import Any

LARGEST = 1e300  # of a figure: neither infinite nor no number at all


def parse_json(text: bytes) -> Any:
    """What a text says. Raises ValueError where it is no JSON, or too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("brackets in brackets") from None


def is_count(value: Any) -> bool:
    """Whether this is a whole number of at least 0; a truth value is none."""
    return type(value) is int and value >= 0


def is_figure(value: Any) -> bool:
    """Whether this is a number to compute with."""
    return type(value) in (int, float) and abs(value) < LARGEST
