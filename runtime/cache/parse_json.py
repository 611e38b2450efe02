"""JSON that may be anything: its text, and values of it as the types that they should be of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

LARGEST_FIGURE = 1e300  # neither infinite nor no number at all


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
    return type(value) in (int, float) and abs(value) < LARGEST_FIGURE


def read_as(kind: Any, value: Any, name: str) -> Any:
    """A value as something of this type: lists become tuples, and objects mappings or dataclasses.

    Integers are counts, floats figures. Raises ValueError, with the name of the value, where it is none of them.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _read_record(kind, value, name)
    if origin is tuple and isinstance(value, list):
        return tuple(read_as(parts[0], one, name) for one in value)
    if origin is Mapping and isinstance(value, dict):
        return {key: read_as(parts[1], one, name) for key, one in value.items()}
    if origin is UnionType:  # of something and None
        return None if value is None else read_as(parts[0], value, name)
    if origin is Literal:
        right = value in parts
    else:
        right = {int: is_count, float: is_figure}.get(kind, lambda one: type(one) is kind)(value)
    if not right:
        raise ValueError(f"{name} {value!r:.100}")
    return value


def _read_record(kind: Any, value: Any, name: str) -> Any:
    hints = _hints(kind)
    if not isinstance(value, dict) or value.keys() != hints.keys():
        raise ValueError(f"{name} with other fields")
    return kind(**{field: read_as(hint, value[field], field) for field, hint in hints.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
