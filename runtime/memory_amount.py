"""Amounts of memory from their text."""

from __future__ import annotations

import re

from brickrt.graph.errors import BrickError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def memory_amount(option: str, text: int | str | None) -> int | None:
    """`1GiB`, `700MiB`, `2G` (a binary unit, as memory is sold) or `1e9` as bytes; `1GB` is 10⁹. What is no text
    stays as it is. Raises BrickError for other text that `option` was given."""
    if not isinstance(text, str):
        return text
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\d+)?)\s*([kmgt]?)(i?b)?", text.strip().lower())
    size = 0.0
    if found:
        number, prefix, unit = found.groups()
        size = float(number) * _UNITS[prefix + ("" if unit == "b" or not prefix else "i")]
    if not 1 <= size < 2**60:
        raise BrickError(f"{option} '{text}' is no amount of memory: write it as {option} 1GiB, 700MiB or 1e9")
    return int(size)
