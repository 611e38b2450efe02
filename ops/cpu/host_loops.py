"""What compiled loops of the host and those who call them agree on: the elements of an item, and the words of a loop.

Nothing here needs LLVM, which callers may lack.
"""

from __future__ import annotations

from collections.abc import Sequence

LANES = 16  # elements of a vector; channels that are innermost lie in whole ones
SCATTER_BLOCK = 1 << 12  # elements behind the axis that an item has, at most
POINT_BLOCK = 1 << 8  # points of an item, at most
SENTINELS = 2  # entries before the taps of a bin, which no tap is equal to
VECTORS_AT_ONCE = 4  # of channels, that are summed together

CHANNELS_LAST_WORDS = ("source", "out", "rows", "columns", "channels", "image_step", "channel_step", "row_step")
SCATTER_WORDS = ("out", "indices", "updates", "wrong", "extent", "rows", "inner", "blocks")
POINT_WORDS = ("out", "pixels", "grid", "points", "blocks", "channels", "image_step", "channel_step")
POINT_AXIS_WORDS = ("extent", "step")
REGION_WORDS = ("pixels", "out", "channels", "image_step", "starts", "sizes", "samples", "images", "taps", "tile")
REGION_AXIS_WORDS = ("bins", "extent", "step", "offsets", "weights", "counts")


def with_axes(names: Sequence[str], of_axes: Sequence[str], axes: int) -> tuple[str, ...]:
    """The names of words, and behind them those of each axis, such as "extent0"."""
    return (*names, *(f"{name}{axis}" for axis in range(axes) for name in of_axes))


def in_order(names: Sequence[str], **values: int) -> list[int]:
    """The values of words in the order of their names. Raises KeyError where one is missing or has no such name."""
    if values.keys() != set(names):
        raise KeyError(f"words {sorted(values)} for {sorted(names)}")
    return [values[name] for name in names]
