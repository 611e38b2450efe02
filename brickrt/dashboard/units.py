"""Numbers and bytes as people read them."""

from __future__ import annotations


def count_text(n: float) -> str:
    """A number in at most six characters, as 13.9k."""
    for divisor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= max(divisor, 1e4):
            return f"{n / divisor:.1f}{unit}"
    return f"{n:.0f}"


def size_text(nbytes: float) -> str:
    """Bytes with a unit, as 12.3 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"
