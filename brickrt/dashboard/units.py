"""Numbers, bytes and times as people read them."""

from __future__ import annotations


def count_text(n: float) -> str:
    """A number in at most six characters, as 13.9k."""
    for divisor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= max(divisor, 1e4):
            return f"{n / divisor:.1f}{unit}"
    return f"{n:.0f}"


def size_text(nbytes: float) -> str:
    """Bytes with a unit, as 12.3 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def time_text(seconds: float) -> str:
    """Seconds as people read them: `48 s`, `3 min 2 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60} min"
