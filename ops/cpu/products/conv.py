"""Direct convolution and transposed convolution, 1 to 3 dimensions: what identifies a kernel, and its weights.

Per tile of OB blocks of output channels and T pixels of a row, all accumulators stay in registers while input channels
and taps are swept. Packed weights are one contiguous stream per OB blocks. Pixels that read padding are left out when
the kernel is built (row_tiles.py), rows that do so at run time (conv_body.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.emit.epilogue import Epilogue, rows_join
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.products.conv_body import ConvBody
from brickrt.ops.cpu.products.few_outputs import FewOutputsBody, Fold, fold_of, pack_fold
from brickrt.ops.cpu.products.row_tiles import RowWindow, choose_tile, common_cut, tile_runs
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.types import Boxes

POINT = RowWindow(1, 1, 1, 1, 0)


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


def joins_rows(op: Conv | ConvTranspose, ins: Sequence[Operand], out: Operand, boxes: Boxes) -> bool:
    """Whether a box of a pointwise convolution is one long row, in every operand.

    Rows are joined when all boxes cover all dimensions but the outermost spatial one.
    """
    if not is_pointwise(op) or out.type.rank < 4:
        return False
    shape = np.asarray(out.shape[3:])
    whole = bool(np.all(boxes.lo[:, 3:] == 0) and np.all(boxes.hi[:, 3:] == shape))
    return whole and all(rows_join(o, out.shape[2:]) for o in (ins[0], out, *ins[op.main :]))


@dataclass(frozen=True)
class ConvKernel(Kernel):
    """`shape_class` is (align, flat, width, phase, first, last): `align` as in `choose_tile`; with `flat` a box is one
    row of `width` pixels (`joins_rows`); the last four are of the innermost dimension (`RowWindow.shape_class`)."""

    op: Conv | ConvTranspose

    fetches: ClassVar[bool] = True

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        assert isinstance(op, Conv | ConvTranspose)
        align = common_cut(boxes, 1, out.shape[1] // op.groups, isa.lanes) * op.gate_parts
        flat = joins_rows(op, ins, out, boxes)
        spans = np.stack([boxes.lo[:, -1], boxes.hi[:, -1]], axis=1)
        if flat:
            pixels = boxes.extents[:, 2:].prod(axis=1)
            spans = np.stack([np.zeros_like(pixels), pixels], axis=1)
        window = replace(POINT, extent=int(spans.max(initial=1))) if flat else windows(op, ins[0].shape[2:])[-1]
        spans, which = np.unique(spans, axis=0, return_inverse=True)
        keys: list[tuple[int, ...]] = [(align, int(flat), *window.shape_class(int(lo), int(hi))) for lo, hi in spans]
        classes = list(dict.fromkeys(keys))
        return np.array([classes.index(k) for k in keys])[which.reshape(-1)], classes

    @property
    def flat(self) -> bool:
        return bool(self.shape_class[1])

    @property
    def row_class(self) -> tuple[int, int, int, int]:
        _, _, width, phase, first, last = self.shape_class
        return width, phase, first, last

    @property
    def lanes(self) -> int:
        return self.isa.lanes

    @property
    def group_in(self) -> int:
        """Input channels of a group."""
        return self.ins[0].shape[1] // self.op.groups

    @property
    def group_out(self) -> int:
        """Output channels of a group, of all parts."""
        return self.out.shape[1] * self.op.gate_parts // self.op.groups

    @property
    def group_blocks(self) -> int:
        """Blocks of output channels of a group, whole ones for each part."""
        parts = self.op.gate_parts
        return parts * -(-self.group_out // parts // self.lanes)

    @cached_property
    def fold(self) -> Fold | None:
        """`fold_of`; where it is not None the last block of output channels has code and weights of its own."""
        return fold_of(self)

    @property
    def whole_blocks(self) -> int:
        """Blocks of output channels of a group, without a folded one."""
        return self.group_blocks - bool(self.fold)

    @property
    def unit(self) -> int:
        """Input channels that lie at a constant stride whatever the group: the innermost sweep."""
        block = self.ins[0].block
        if block == 1:
            return self.group_in
        return block if self.op.groups == 1 else math.gcd(self.group_in, block)

    @property
    def taps(self) -> int:
        return math.prod(self.op.kernel)

    @cached_property
    def row_window(self) -> RowWindow:
        return POINT if self.flat else windows(self.op, self.ins[0].shape[2:])[-1]

    @cached_property
    def tile(self) -> tuple[int, int]:
        """(OB, T) of `choose_tile`; equal for all shape classes, since they share the packed weights."""
        double = self.out.dtype.itemsize == 8
        isa = replace(self.isa, registers=self.isa.registers // 2) if double else self.isa
        step = self.op.strides[-1] if isinstance(self.op, ConvTranspose) else 1
        pixels = math.prod(self.out.shape[2:]) if is_pointwise(self.op) else -(-self.out.shape[-1] // step)
        return choose_tile(max(min(pixels, 512), 1), self.whole_blocks, self.shape_class[0], isa, self.op.gate_parts)

    @property
    def tiled_blocks(self) -> int:
        """`whole_blocks` up to whole tiles."""
        ob, _ = self.tile
        return -(-self.whole_blocks // ob) * ob

    @property
    def padded_blocks(self) -> int:
        """Blocks of output channels of a group as its packed constants have them."""
        return self.tiled_blocks + bool(self.fold)

    @property
    def workspace(self) -> int:
        """Room for the weights of a tile times the factors of the input's channels."""
        scaled = self.op.channel_scaled and self.packed[1]
        return self.group_in * self.taps * self.tile[0] * self.lanes * self.out.dtype.itemsize if scaled else 0

    def swept(self, boxes: Boxes) -> np.ndarray | None:
        """As if no tap fell on padding."""
        if self.op.groups > 1 or self.fold or not self.packed[1]:
            return None
        ob, most = self.tile
        width = sum(run.repeat for run in tile_runs(self.row_window, self.row_class, most))
        blocks = -(-boxes.hi[:, 1] // self.lanes) - boxes.lo[:, 1] // self.lanes
        rows = boxes.extents[:, 0] * (1 if self.flat else boxes.extents[:, 2:-1].prod(axis=1))
        return rows * width * -(-blocks * self.op.gate_parts // ob) * self.group_in * self.taps

    @cached_property
    def epilogue(self) -> Epilogue:
        first = self.op.main
        found = Epilogue(self.op.epilogue, first, self.ins[first:], self.out, self.lanes)
        return found.joined() if self.flat else found

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Weights as one stream per tile, bias up to whole tiles per group, epilogue constants as the operands say."""
        if i == 1:
            return self._pack_weights(array)
        if i == 2 and self.op.bias:
            split = self._by_tiles(array).reshape(self.op.groups, -1)
            return np.pad(split, [(0, 0), (0, self.padded_blocks * self.lanes - split.shape[1])])
        return super().pack(i, array)

    def _pack_weights(self, w: np.ndarray) -> np.ndarray:
        """[M, C/g, k…] (transposed: [C, M/g, k…]) → [group, tile, channel unit, taps, channel, OB*lanes], flat.

        A folded block's follow.
        """
        g, c = self.op.groups, self.group_in
        if isinstance(self.op, ConvTranspose):
            w = np.moveaxis(w.reshape(g, c, self.group_out, self.taps), 2, 1)
        rows = self._by_tiles(w).reshape(g, -1, c, self.taps)
        if not self.fold:
            return self._pack_tiles(rows)
        whole = self.whole_blocks * self.lanes
        tiles = self._pack_tiles(rows[:, :whole])
        return np.concatenate([tiles.ravel(), pack_fold(rows[0, whole:], self.unit, self.fold)])

    def _by_tiles(self, array: np.ndarray) -> np.ndarray:
        """Channels [M, …] of several parts in the order of the tiles: of each part the blocks that one tile holds."""
        parts, (ob, _) = self.op.gate_parts, self.tile
        if parts == 1:
            return array
        split = array.reshape(parts, -1, *array.shape[1:])
        blocks = self.group_blocks // parts
        padded = np.zeros((parts, blocks * self.lanes, *split.shape[2:]), array.dtype)
        padded[:, : split.shape[1]] = split
        padded = padded.reshape(parts, blocks, self.lanes, *split.shape[2:])
        tiles = [padded[:, k : k + ob // parts].reshape(-1, *array.shape[1:]) for k in range(0, blocks, ob // parts)]
        return np.concatenate(tiles)

    def _pack_tiles(self, rows: np.ndarray) -> np.ndarray:
        """[group, M, C, taps] → [group, tile, channel unit, taps, channel, OB*lanes]."""
        g, c, u, width = self.op.groups, self.group_in, self.unit, self.tile[0] * self.lanes
        tiles = self.tiled_blocks * self.lanes // width
        out = np.zeros((g, tiles, c * self.taps * width), rows.dtype)
        edges = [(start, min(start + u, c)) for start in range(0, c, u)]
        whole = c - c % u
        for tile in range(tiles):
            part = rows[:, tile * width : (tile + 1) * width]
            many = out[:, tile, : whole * self.taps * width].reshape(g, whole // u, self.taps, u, width)
            units = part[:, :, :whole].reshape(g, part.shape[1], whole // u, u, self.taps)
            many[..., : part.shape[1]] = units.transpose(0, 2, 4, 3, 1)
            if c % u:
                tail = out[:, tile, whole * self.taps * width :].reshape(g, self.taps, edges[-1][1] - whole, width)
                tail[..., : part.shape[1]] = part[:, :, whole:].transpose(0, 3, 2, 1)
        return out

    def emit(self, f: FunctionEmitter) -> None:
        ConvBody(self, f, FewOutputsBody(self, f, self.fold) if self.fold else None).emit()
