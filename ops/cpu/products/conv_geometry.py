"""Which input pixels a convolution's output pixels read, as far as kernels are chosen and specialized by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.products.row_tiles import RowWindow
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.types import Boxes

POINT = RowWindow(1, 1, 1, 1, 0)
CHUNK_BYTES, WHOLE_BYTES = 2**16, 2**18
"""Weights of a block of output channels that all pixels are swept over before the next ones; so many that they are
swept at once."""
MOST_PIXELS = 512
"""Pixels that share chunks of weights (`rows/pace.py`) where these are what memory brings; more of them wait for it a
short time."""


def windows(op: Conv | ConvTranspose, spatial: Sequence[int]) -> list[RowWindow]:
    """One window per spatial dimension."""
    transposed = isinstance(op, ConvTranspose)
    parts = zip(spatial, op.kernel, op.strides, op.dilations, op.pads, strict=True)
    return [RowWindow(*part, transposed) for part in parts]


def reads_one_pixel(op: Conv) -> bool:
    """Whether each output pixel reads one input pixel alone."""
    return set(op.kernel) == {1} and not any(op.pads + op.pads_end)


def is_pointwise(op: Op) -> bool:
    """Whether each output pixel reads the input pixel of the same index alone."""
    return isinstance(op, Conv) and reads_one_pixel(op) and set(op.strides) == {1}


def rows_join(operand: Operand, spatial: Sequence[int]) -> bool:
    """Whether an operand can be walked along all `spatial` dimensions of the output as along one.

    Either it has them all and they lie without gaps, or it is the same everywhere in them.
    """
    first = max(0, len(operand.shape) - len(spatial))
    extents, strides = operand.shape[first:], operand.strides[first:]
    if all(extent == 1 for extent in extents):
        return True
    gapless = all(s == extent * inner for s, extent, inner in zip(strides, extents[1:], strides[1:], strict=False))
    return gapless and extents == tuple(spatial)


def joins_rows(op: Conv | ConvTranspose, ins: Sequence[Operand], out: Operand, boxes: Boxes) -> bool:
    """Whether a box of a pointwise convolution is one long row, in every operand.

    Rows are joined when all boxes cover all dimensions but the outermost spatial one.
    """
    if not is_pointwise(op) or out.type.rank < 4:
        return False
    shape = np.asarray(out.shape[3:])
    whole = bool(np.all(boxes.lo[:, 3:] == 0) and np.all(boxes.hi[:, 3:] == shape))
    return whole and all(rows_join(o, out.shape[2:]) for o in (ins[0], out, *ins[op.main :]))


def chunk_channels(channels: int, taps: int, unit: int, lanes: int) -> int:
    """Input channels, of so many, that all pixels of a box are swept over before the next ones: whole units.

    All of them where the weights of a block of output channels are few. Those of many would leave L2, and so would the
    inputs, before the next tile reads them again.
    """
    units, each = -(-channels // unit), 4 * lanes * taps * unit
    if units * each <= WHOLE_BYTES:
        return channels
    return unit * -(-units // -(-units // max(1, CHUNK_BYTES // each)))
