"""Values of options from their text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from brickrt.graph.errors import BrickError


def numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """`0.5,0.5,0.5` as numbers."""
    if text is None:
        return None
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = (math.nan,)
    if not all(map(math.isfinite, values)):
        raise BrickError(f"{option} '{text}' is not a list of numbers: write it as {option} 0.5,0.5,0.5")
    return values


def deviations(text: str | None) -> tuple[float, ...] | None:
    """The numbers of --std, which are divided by and so are above 0."""
    values = numbers("--std", text)
    if values and min(values) <= 0:
        raise BrickError(f"--std '{text}' is impossible: give numbers above 0, such as 0.5,0.5,0.5")
    return values


_TYPES = ("uint8", "uint16", "int8", "int16", "int32", "float16", "float32", "float64")


def stored_as(text: str | None) -> tuple[str | None, float | None]:
    """`uint8` or `uint8:255` as a type and what floats are multiplied with before."""
    if text is None:
        return None, None
    kind, colon, factor = text.partition(":")
    try:
        scale = float(factor) if colon else None
    except ValueError:
        scale = math.nan
    if kind not in _TYPES or (scale is not None and not math.isfinite(scale)):
        raise BrickError(
            f"--as '{text}' is impossible: write it as --as uint8, or uint8:255 to multiply with 255 first"
        )
    return kind, scale


def names(text: str | None) -> tuple[str, ...] | None:
    """`a,b` as names, each once."""
    return None if text is None else tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def extents(option: str, text: str, example: str, least: int = 1) -> tuple[int, ...]:
    """`16x112x112` or `16` as whole numbers of at least `least`."""
    parts = text.lower().replace("×", "x").split("x")
    if not all(part.isascii() and part.isdigit() and int(part) >= least for part in parts):
        raise BrickError(f"{option} '{text}' is impossible: write it as {option} {example}")
    return tuple(int(part) for part in parts)


def height_width(text: str | None) -> tuple[int, int] | None:
    """`480x640` as height and width."""
    if text is None:
        return None
    found = extents("--resize", text, "480x640 (height x width)")
    if len(found) != 2:
        raise BrickError(f"--resize '{text}' is impossible: write it as --resize 480x640 (height x width)")
    return found[0], found[1]


def window(text: str | None) -> tuple[int, ...] | None:
    """--window: `256` for all axes, `96x96x96` as one extent for each."""
    return None if text is None else extents("--window", text, "256, or 96x96x96")


def spatial_size(text: str | None, may_be_open: bool = False) -> int | tuple[int, ...] | None:
    """--size of a network of the zoo: `224` as one number, `16x112x112` as one per dimension; `0` for extents that
    `may_be_open`."""
    if may_be_open and text is not None and text.strip() == "0":
        return 0
    sizes = () if text is None else extents("--size", text, "224, or 16x112x112")
    return sizes[0] if len(sizes) == 1 else sizes or None


def named_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`x=1,3,224,224` as a name and a shape; `x=` is a scalar."""
    name, separator, dims = text.rpartition("=")
    parts = [part.strip() for part in dims.split(",")] if dims.strip() else []
    if not separator or not name or not all(part.isascii() and part.isdigit() for part in parts):
        raise BrickError(f"--shape '{text}' is impossible: write it as --shape x=1,3,224,224")
    return name, tuple(int(part) for part in parts)


def named_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of several --shape options, by name of the input."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in map(named_shape, texts):
        if name in shapes:
            raise BrickError(f"--shape names input '{name}' twice: give it once")
        shapes[name] = shape
    return shapes
