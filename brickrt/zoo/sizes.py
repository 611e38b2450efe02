"""Which input sizes a network takes."""

from __future__ import annotations


def check_size(
    name: str, size: tuple[int, ...], minimum: tuple[int, ...], multiple: int = 1, maximum: int | None = None
) -> None:
    """ValueError, naming the nearest size that works, unless `size` is within the bounds and a multiple."""
    nearest = tuple(_nearest(*extents, multiple, maximum) for extents in zip(size, minimum))
    if nearest == size:
        return
    rule = [f"at least {_text(minimum)}"]
    if multiple > 1:
        rule.append(f"every extent a multiple of {multiple}")
    if maximum is not None:
        rule.append(f"none above {maximum}")
    raise ValueError(f"{name}: size {_text(size)} does not fit; it takes {', '.join(rule)}; try {_text(nearest)}")


def _nearest(extent: int, minimum: int, multiple: int, maximum: int | None) -> int:
    extent = max(extent, minimum)
    if maximum is not None:
        extent = min(extent, maximum)
    return max(round(extent / multiple) * multiple, multiple)


def _text(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))
