"""What blended windows are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal, get_args

from brickrt.graph.errors import BrickError

Blend = Literal["gaussian", "constant"]
BLENDS: tuple[str, ...] = get_args(Blend)
OVERLAP, BLEND = 0.5, "gaussian"  # where nothing is said


@dataclass(frozen=True)
class WindowOptions:
    """Windows of `window` elements along each axis behind the channels, or of one number along all; each overlaps the
    next by the share `overlap`. Results are weighted by a Gaussian about the window's middle, or all alike."""

    window: tuple[int, ...]
    overlap: float = OVERLAP
    blend: Blend = "gaussian"

    def check(self) -> WindowOptions:
        """The same. Raises BrickError for what makes no sense."""
        if not self.window or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in self.window):
            raise BrickError(f"window {list(self.window)} is impossible: give whole numbers above 0, such as 256")
        if not isinstance(self.overlap, Real) or isinstance(self.overlap, bool) or not 0 <= self.overlap < 1:
            raise BrickError(f"overlap {self.overlap!r} is impossible: give a share from 0 to below 1, such as 0.5")
        if self.blend not in BLENDS:
            raise BrickError(f"blend '{self.blend}' is none of {', '.join(BLENDS)}: give one of them")
        return self

    def along(self, axes: int) -> tuple[int, ...]:
        """The extent along each of so many axes. Raises BrickError where there are others."""
        if len(self.window) not in (1, axes):
            given = "x".join(map(str, self.window))
            raise BrickError(f"window {given}: the network's input has {axes} axes to cut: give 1 number, or {axes}")
        return self.window * axes if len(self.window) == 1 else self.window

    def remark(self) -> str:
        """What reports and files say of such a result, in ASCII."""
        window = "x".join(map(str, self.window))
        return f"blended windows of {window}, overlap {self.overlap:g}: not the exact result"


def window_options(
    window: int | tuple[int, ...], overlap: float | None = None, blend: str | None = None
) -> WindowOptions:
    """The options, checked; what is None is as usual. Raises BrickError."""
    extents = tuple(window) if isinstance(window, (tuple, list)) else (window,)
    share, how = OVERLAP if overlap is None else overlap, BLEND if blend is None else blend
    return WindowOptions(extents, share, how).check()  # type: ignore[arg-type]
