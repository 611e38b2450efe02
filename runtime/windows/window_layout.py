"""Where windows lie in an image, and what they give in the output.

As MONAI's `sliding_window_inference` has it (docs.monai.io/en/stable/inferers.html): an image that is smaller than the
window is padded on both sides, windows begin every int(window × (1 − overlap)) elements, and the last one ends at the
image's edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from brickrt.graph.errors import BrickError
from brickrt.runtime.windows.window_options import WindowOptions

Extents = tuple[int, ...]


@dataclass(frozen=True)
class WindowLayout:
    """Windows in an image: extents along the axes behind the channels, of the image, of the image with its padding,
    and of a window; the padding in front; where windows begin along each axis, counted with the padding."""

    image: Extents
    padded: Extents
    window: Extents
    front: Extents
    starts: tuple[Extents, ...]

    @classmethod
    def of(cls, image: Extents, options: WindowOptions) -> WindowLayout:
        """The layout of windows in an image."""
        window = options.along(len(image))
        padded = tuple(map(max, image, window))
        front = tuple((whole - extent) // 2 for whole, extent in zip(padded, image, strict=True))
        starts = tuple(_starts(whole, w, options.overlap) for whole, w in zip(padded, window, strict=True))
        return cls(image, padded, window, front, starts)

    @property
    def rows(self) -> int:
        """Rows of windows: those that begin at the same row of the image."""
        return len(self.starts[0])

    @property
    def places(self) -> list[Extents]:
        """Where the windows of a row begin along the axes behind the rows."""
        return list(product(*self.starts[1:]))

    def finished(self, row: int) -> tuple[int, int]:
        """The rows, with the padding, that no window after a row of windows touches, and none before finished."""
        starts = self.starts[0]
        return starts[row], starts[row + 1] if row + 1 < len(starts) else self.padded[0]

    def first_for(self, row: int) -> int:
        """The first row of windows that touches what `row` finishes."""
        begin = self.finished(row)[0]
        return next(k for k, start in enumerate(self.starts[0]) if start + self.window[0] > begin)


def _starts(image: int, window: int, overlap: float) -> Extents:
    """Where windows begin along one axis."""
    interval = max(1, int(window * (1 - overlap)))
    count = -(-(image - window) // interval) + 1
    return tuple(min(k * interval, image - window) for k in range(count))


def scaled_layout(name: str, layout: WindowLayout, window: Extents) -> WindowLayout:
    """Where the windows' results lie in the output `name`, of which a window gives the extents `window`: a multiple or
    a fraction of the input's. Raises BrickError where that is none, and where results would begin between elements."""
    if len(window) != len(layout.window):
        raise BrickError(
            f"the output '{name}' has {len(window)} axes behind the channels, and the input {len(layout.window)}: "
            "results of windows are only put together where these are the same"
        )
    ratios = [Fraction(out, given) for out, given in zip(window, layout.window, strict=True)]
    for axis, ratio in enumerate(ratios):
        if min(ratio.numerator, ratio.denominator) != 1 or not ratio:
            raise BrickError(
                f"the output '{name}' has {window[axis]} elements for {layout.window[axis]} of a window, which is no "
                "multiple and no fraction: give another window"
            )
        _check_whole(name, layout, axis, ratio)
    image, padded, front = (_times(extents, ratios) for extents in (layout.image, layout.padded, layout.front))
    starts = tuple(tuple(int(start * ratio) for start in along) for along, ratio in zip(layout.starts, ratios))
    return WindowLayout(image, padded, window, front, starts)


def _times(extents: Extents, ratios: Sequence[Fraction]) -> Extents:
    return tuple(int(extent * ratio) for extent, ratio in zip(extents, ratios, strict=True))


def _check_whole(name: str, layout: WindowLayout, axis: int, ratio: Fraction) -> None:
    """Refuses results that begin or end between elements of the output."""
    part, word = ratio.denominator, f"the output '{name}' has an element for {ratio.denominator} of the input"
    if layout.image[axis] % part or layout.front[axis] % part:
        raise BrickError(f"{word}: {layout.image[axis]} are not cut into windows so: pad the image to a multiple")
    wrong = [start for start in layout.starts[axis] if start % part]
    if wrong:
        raise BrickError(f"{word}, and a window begins at {wrong[0]}: give another overlap, such as 0.5")
