"""How a Winograd kernel walks the spatial dimensions of a convolution: which are tiled and which is swept.

1-D          x tiled                            3-D 3×3×3      z swept, y and x tiled: F(m×m, 3×3)
2-D 3×3      y and x tiled: F(m×m, 3×3)         3-D 3×1×1      z tiled
2-D 1×7      x tiled: F(m, 7), y by points      3-D 1×3×3      z by points, y and x tiled

A stride of s along a tiled dimension makes s convolutions of it, of every s-th input and tap, whose products are added
up before the output transform: 3×3 at stride 2 are four of 2×2 taps, some of them zero. A tap that is missing at the
end of one makes its product at ∞ zero, which is left out: F(5, 2) then multiplies 11 times for five outputs, not 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Shape

Number = TypeVar("Number", int, np.ndarray)

# Interpolation points ±p of F(m, r), besides ∞, and 0 where n is even: those that round least of many tried, in float32
# against float64.
POINTS: dict[tuple[int, int], tuple[float, ...]] = {
    (1, 1): (),
    (2, 3): (1.0,),
    (4, 3): (0.5**0.5, 2.0**0.5),
    (6, 3): (0.5, 1.0, 2.0**0.5),
    (3, 2): (1.0,),
    (5, 2): (0.5**0.5, 2.0**0.5),
    (4, 2): (0.4, 1.33),
    (3, 4): (0.5**0.5, 2.0**0.5),
    (4, 4): (0.3, 0.9, 1.6),
    (3, 5): (0.3, 0.9, 1.6),
    (2, 5): (0.5**0.5, 2.0**0.5),
    (4, 5): (0.5, 1.0, 2.0),
    (2, 7): (0.6, 1.0, 5 / 3),
    (4, 7): (0.4, 0.78, 1.33, 2.45),
}
# Those that round little enough along two dimensions as well.
PLANAR = frozenset({(2, 3), (4, 3), (2, 5), (3, 5), (3, 2), (4, 2), (5, 2), (3, 4), (4, 4)})


@dataclass(frozen=True)
class Axis:
    """One spatial dimension, of r taps. Tiled: m outputs, `dilation` apart, of each residue modulo the stride from n
    inputs. Swept: m = 1.

    `dim` counts the tensors' dimensions; None is a dimension of one element that they do not have.
    """

    dim: int | None
    m: int
    r: int
    stride: int
    dilation: int
    pad: int
    extent: int

    @cached_property
    def residues(self) -> int:
        """Convolutions of stride 1 that make up this one."""
        return self.stride if self.m > 1 else 1

    @cached_property
    def taps(self) -> int:
        """Taps of each residue; the first `whole` residues have as many, the others one less."""
        return -(-self.r // self.residues)

    @cached_property
    def whole(self) -> int:
        """Residues with all taps."""
        return self.r - self.residues * (self.taps - 1)

    @cached_property
    def n(self) -> int:
        """Inputs of a tile, and points at which it is evaluated."""
        return self.m + self.taps - 1

    @cached_property
    def inputs(self) -> int:
        """Inputs of a tile, of all residues, `dilation` apart."""
        return (self.m - 1) * self.stride + self.r

    @cached_property
    def points(self) -> tuple[float, ...]:
        """The interpolation points p of the pairs ±p."""
        return POINTS[self.m, self.taps]

    @cached_property
    def products(self) -> int:
        """Multiplications of a tile, of all residues."""
        return self.residues * (self.n - 1) + self.whole

    @cached_property
    def step(self) -> int:
        """From one of the n inputs of a tile to the next."""
        return self.dilation * self.residues

    @cached_property
    def phases(self) -> int:
        """Tiles that lie between each other: a tile's pixels are `dilation` apart."""
        return self.dilation if self.m > 1 else 1

    @cached_property
    def reach(self) -> int:
        """Inputs from the first that an output reads to the last."""
        return (self.r - 1) * self.dilation + 1

    @cached_property
    def shortens(self) -> bool:
        """Whether tiles may have an output less: their last output alone is made of the product at ∞, and of the last
        input, which they leave out. Of several residues, others would read an input that no output reads."""
        return self.m > 1 and self.residues == 1

    def long(self, outputs: Number) -> Number:
        """How many of the tiles that cover so many outputs have m of them. The others have one less: as many as can be
        without one tile more. 14 outputs are two tiles of 4 and two of 3, of 22 products and not 24."""
        each = -(-outputs // self.phases)
        tiles = -(-each // self.m)
        if not self.shortens:
            return self.phases * tiles
        long = each - tiles * (self.m - 1)
        return self.phases * long * (long > 0)

    def after(self, tiles: int) -> int:
        """Outputs from a tile to the one so many further on."""
        steps, phase = divmod(tiles, self.phases)
        return steps * self.m * self.phases + phase

    def tiles(self, outputs: Number) -> Number:
        """Tiles that cover so many outputs, one number or an array: of each phase equally many."""
        each = -(-outputs // self.phases)
        return self.phases * -(-each // self.m)


class Axes(NamedTuple):
    """Every tensor is walked in three dimensions: `swept` outside, tiles of `down` x `across`."""

    swept: Axis
    down: Axis
    across: Axis

    @property
    def planes(self) -> int:
        """Transformed values of a tile."""
        return self.down.n * self.across.n

    @property
    def residues(self) -> int:
        """Convolutions of stride 1 that make up this one."""
        return self.down.residues * self.across.residues

    @property
    def products(self) -> int:
        """Multiplications of a tile, per channel of input and output."""
        return self.down.products * self.across.products

    def register_tiles(self, images: Number, outputs: Sequence[Number], t: Number) -> Number:
        """How many register tiles of `t` tiles are multiplied for so many outputs down and across, of all points and
        residues together; `WinogradFrame` tells how tiles are numbered. Numbers, or arrays of them."""
        (rows, long_rows), (columns, long_columns) = (
            (axis.tiles(extent), axis.long(extent)) for axis, extent in zip(self[1:], outputs, strict=True)
        )
        long, total = images * long_rows * columns, images * rows * columns
        least = images * long_rows * (columns - long_columns)
        of_long_columns = long + images * (rows - long_rows) * long_columns
        (inner_down, last_down), (inner, last) = ((a.products - a.whole, a.whole) for a in self[1:])
        parts = (
            (inner_down * inner, 0, total),
            (last_down * inner, 0, long),
            (inner_down * last, least, of_long_columns),
            (last_down * last, least, long),
        )
        a, b, c, d = (points * (-(-end // t) - first // t) * (end > first) for points, first, end in parts)
        return a + b + c + d

    @property
    def growth(self) -> float:
        """Transformed weights over weights."""
        return self.planes * self.residues / (self.down.r * self.across.r)


def axes_of(op: Conv, spatial: Sequence[int], edge: int) -> Axes:
    """The axes of a convolution of up to three dimensions, in tiles of `edge` where the kernel is larger than 1."""
    return _axes(op.kernel, op.strides, op.dilations, op.pads, spatial, edge)


def known_axes(op: Conv, spatial: Shape, edge: int) -> Axes:
    """The same, made once for equal numbers: a planner asks for the same ones many times."""
    return _known_axes(op.kernel, op.strides, op.dilations, op.pads, spatial, edge)


def _axes(kernel: Shape, strides: Shape, dilations: Shape, pads: Shape, spatial: Sequence[int], edge: int) -> Axes:
    swept = _swept(kernel)
    axes: list[Axis] = []
    for i, r in enumerate(kernel):
        m = edge if r > 1 and i != swept else 1
        axes.append(Axis(2 + i, m, r, strides[i], dilations[i] if r > 1 else 1, pads[i], spatial[i]))
    first = axes.pop(swept) if swept is not None else ABSENT
    return Axes(first, *[ABSENT] * (2 - len(axes)), *axes)


_known_axes = lru_cache(maxsize=1 << 12)(_axes)


def fits(op: Conv, edge: int) -> bool:
    """Whether there is a transform in tiles of `edge` for a convolution, that rounds little enough."""
    if op.groups > 1 or op.gate_parts > 1 or op.channel_scaled or len(op.kernel) > 3:
        return False
    return _is_known(op.kernel, op.strides, op.dilations, edge) and _pads_fit(op)


@lru_cache(maxsize=1 << 10)
def _is_known(kernel: Shape, strides: Shape, dilations: Shape, edge: int) -> bool:
    swept = _swept(kernel)
    tiled = [i for i, r in enumerate(kernel) if r > 1 and i != swept]
    known = PLANAR if len(tiled) > 1 else POINTS
    return bool(tiled) and all(
        (edge, -(-kernel[i] // strides[i])) in known and 1 in (strides[i], dilations[i]) for i in tiled
    )


ABSENT = Axis(None, 1, 1, 1, 1, 0, 1)


def _swept(kernel: Shape) -> int | None:
    """The swept one of three dimensions: the first whose kernel is 1, else the outermost. None of fewer dimensions."""
    if len(kernel) < 3:
        return None
    return kernel.index(1) if 1 in kernel else 0


def _pads_fit(op: Conv) -> bool:
    """Whether every output reads from inside the tensor, or between what it reads there."""
    spans = [(r - 1) * d + 1 for r, d in zip(op.kernel, op.dilations, strict=True)]
    return all(0 <= pad < span for pads in (op.pads, op.pads_end) for pad, span in zip(pads, spans, strict=True))
