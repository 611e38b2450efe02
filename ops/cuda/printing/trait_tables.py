"""What structs of compile-time constants are printed of."""

from __future__ import annotations

from collections.abc import Sequence


def table(name: str, kind: str, values: Sequence[int]) -> str:
    """A function of a trait that gives entry k of some integers, at compile time where k is known then."""
    entries = ", ".join(map(str, values))
    return f"static BRICK_DEVICE constexpr {kind} {name}(int k) {{ const {kind} v[] = {{{entries}}}; return v[k]; }}\n"
