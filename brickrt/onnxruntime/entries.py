"""Entries of options: texts by name."""

from __future__ import annotations

from collections.abc import Mapping

from brickrt.graph.errors import BrickError


def entry_of(entries: Mapping[str, str], key: str) -> str:
    """An entry that was added. Raises BrickError where there is none."""
    if key not in entries:
        raise BrickError(f"the options have no entry '{key}': add it first")
    return entries[key]
