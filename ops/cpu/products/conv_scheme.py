"""What identifies a kernel of a direct or transposed convolution, and the sizes that follow: all but its code.

Per tile of OB blocks of output channels and T pixels of a row, all accumulators stay in registers while input channels
and taps are swept. Pixels that read padding are left out when the kernel is built (row_tiles.py), rows that do so at
run time (live_taps.py).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.arithmetic.quantize import PACKS
from brickrt.ops.cpu.emit.llvm_types import computed_type
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import Epilogue
from brickrt.ops.cpu.products.conv_geometry import POINT, chunk_channels, is_pointwise, joins_rows, windows
from brickrt.ops.cpu.products.few_outputs import FEWEST_PIXELS, FewOutputs, power_of_two
from brickrt.ops.cpu.products.register_tile import LINE
from brickrt.ops.cpu.products.row_tiles import RowWindow, choose_tile, common_cut, tile_runs
from brickrt.ops.cpu.products.rows.pace import COPIED_TILES, chunk_steps, share_chunks
from brickrt.ops.cpu.products.rows.short_rows import choose_length
from brickrt.ops.cpu.products.words.choose_dot import left_registers
from brickrt.ops.cpu.products.words.words import WORD, in_words, multiplies_integers, multiplies_pairs, word_elements
from brickrt.ops.cpu.weighted_kernel import WeightedKernel
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.product_types import SUMS
from brickrt.ops.types import Boxes

STRAIGHT_CODE = 3
"""How much code a tile without a loop over channels is: LLVM looks at those beside it too."""
LEAST_LATE_WORDS, MOST_LATE_WORDS = 16, 64
"""Words of K that a tile sums where outputs of the one before are finished meanwhile: fewer are not enough steps, and
for more it costs as much as it saves, as it does for more than the first number where finishing is short."""
ANY_ROW = (0, 0, 0, 0)
"""In place of `RowWindow.shape_class`, where code does not depend on it."""
FLOAT16 = np.dtype(np.float16)


@dataclass(frozen=True)
class ConvScheme(WeightedKernel):
    """`shape_class` is (align, flat, width, phase, first, beyond): `align` as in `choose_tile`; with `flat` a box is
    one row of `width` pixels (`joins_rows`); the last four are of the innermost dimension (`RowWindow.shape_class`).
    `decided` are `tile`, `few_outputs`, `walks_taps`, `shares_chunks`, `widens` and `packs_weights`."""

    op: Conv | ConvTranspose

    prefetches: ClassVar[bool] = True
    sized: ClassVar[bool] = True
    compiles_quickly: ClassVar[bool] = True
    narrow_codes: ClassVar[int] = 4

    @property
    def open_classes(self) -> Sequence[int]:
        """See `Kernel`: the tile is decided, and a width is a size."""
        return 0, 2

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """Boxes by the width of their rows, and by how these meet the tensor's edges."""
        assert isinstance(op, Conv | ConvTranspose)
        align = common_cut(boxes, 1, out.shape[1] // op.groups, isa.lanes) * op.gate_parts
        flat = joins_rows(op, ins, out, boxes)
        kernel = cls(op, tuple(ins), out, isa, (False,) * len(ins), (align, int(flat), *ANY_ROW))
        if kernel.walks_taps:
            return np.zeros(len(boxes), np.int64), [kernel.shape_class]
        spans = np.stack([boxes.lo[:, -1], boxes.hi[:, -1]], axis=1)
        if flat:
            pixels = boxes.extents[:, 2:].prod(axis=1)
            spans = np.stack([np.zeros_like(pixels), pixels], axis=1)
        window = replace(POINT, extent=int(spans.max(initial=1))) if flat else windows(op, ins[0].shape[2:])[-1]
        spans, which = np.unique(spans, axis=0, return_inverse=True)
        keys: list[tuple[int, ...]] = [(align, int(flat), *window.shape_class(int(lo), int(hi))) for lo, hi in spans]
        classes = list(dict.fromkeys(keys))
        return np.array([classes.index(k) for k in keys])[which.reshape(-1)], classes

    @cached_property
    def knows_channels(self) -> bool:
        """See `Kernel`: those of one group, in blocks, are sizes where the last block is like the others."""
        plain = self.op.groups == self.op.gate_parts == 1 and self.packed[1]
        blocked = self.ins[0].block > 1 and self.out.block > 1
        return not (plain and blocked) or self.few_outputs is not None

    def decisions(self) -> tuple[Any, ...]:
        """See `Kernel`."""
        return self.tile, self.few_outputs, self.walks_taps, self.shares_chunks, self.widens, self.packs_weights

    def packing(self, i: int) -> Hashable:
        """See `Kernel`: channels, those of a tile, and whether a block has few outputs."""
        return super().packing(i), self.ins[0].shape[1], self.out.shape[1], self.tile[0], self.few_outputs

    @property
    def flat(self) -> bool:
        """Whether a box is one row of pixels."""
        return bool(self.shape_class[1])

    @property
    def tap_code(self) -> int | None:
        """How much code a tap of a row is (`RowWindow.is_long`); None: a loop covers equal ones."""
        return None

    @cached_property
    def walks_taps(self) -> bool:
        """Whether a row is computed pixel by pixel, by a loop over its taps: the same code for all boxes, where that of
        register tiles would be too long. Tiles of weights that are not packed tell it, of which alone `classify`
        knows: were it told by others, a kernel could have tiles of rows that its class says nothing of."""
        if self.decided:
            return self.decided[2]
        tile_code = STRAIGHT_CODE if self.group_in == 1 else 1
        _, pixels = replace(self, packed=(False,) * len(self.packed)).tile
        return not self.flat and self.row_window.is_long(self.out.shape[-1], pixels, tile_code, self.tap_code)

    @property
    def row_class(self) -> tuple[int, int, int, int]:
        """The part of the shape class that `tile_runs` takes."""
        _, _, width, phase, first, beyond = self.shape_class
        return width, phase, first, beyond

    @property
    def integer(self) -> bool:
        """Whether bytes are multiplied and summed as integers."""
        return multiplies_integers(self.ins)

    @cached_property
    def in_words(self) -> bool:
        """Whether tiles multiply words of several channels: bytes, or bfloat16 in pairs."""
        if self.integer:
            return True
        blocked = self.ins[0].block > 1 and self.out.block > 1 and not self.op.channel_scaled
        return blocked and multiplies_pairs(self.ins, 1, self.op.groups)

    @cached_property
    def x(self) -> Operand:
        """The input as tiles read it."""
        return in_words(self.ins[0], 1) if self.in_words else self.ins[0]

    @property
    def word(self) -> int:
        """Channels that an element of the input as tiles read it holds."""
        return word_elements(self.ins[0].dtype) if self.in_words else 1

    @property
    def weight_type(self) -> np.dtype:
        """The type of weights as tiles read them."""
        return WORD if self.in_words else self.ins[1].dtype

    @property
    def sums(self) -> np.dtype:
        """The type of sums in registers."""
        return SUMS if self.integer else computed_type(self.ins[0].dtype)

    @property
    def group_in(self) -> int:
        """Input channels of a group, or words of them."""
        return self.x.shape[1] // self.op.groups

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
    def few_outputs(self) -> FewOutputs | None:
        """How the last block of output channels is computed where it has few; None where it is like the others."""
        if self.decided:
            return self.decided[1]
        plain, pixels = self.out.block == 1, math.prod(self.out.shape[2:])
        last = self.group_out - (self.group_blocks - 1) * self.lanes
        if self.in_words:
            return None
        ungrouped = self.op.groups == self.op.gate_parts == 1 and not self.op.channel_scaled
        shareable = ungrouped and self.ins[0].block > 1 and self.packed[1]
        ways = min(self.lanes // power_of_two(last), power_of_two(self.group_in)) if shareable else 1
        pays = ways > 1 and (self.group_blocks == 1 or pixels >= FEWEST_PIXELS)
        if ways == 2 and pays and not plain and self.isa.double_pumped and self.out.dtype.itemsize < 8:
            return FewOutputs(1, self.lanes // 2)
        return FewOutputs(ways, self.lanes) if plain or pays else None

    @property
    def whole_blocks(self) -> int:
        """Blocks of output channels of a group, less one where its last block has few outputs."""
        return self.group_blocks - bool(self.few_outputs)

    @property
    def unit(self) -> int:
        """Input channels that lie at a constant stride whatever the group: the innermost sweep."""
        block = self.x.block
        if block == 1:
            return self.group_in
        return block if self.op.groups == 1 else math.gcd(self.group_in, block)

    @property
    def units(self) -> int:
        """Units of input channels, the last of which may be partial."""
        return -(-self.group_in // self.unit)

    @property
    def whole_units(self) -> int:
        """Units of input channels that are whole."""
        return self.group_in // self.unit

    @property
    def tail(self) -> int:
        """Input channels behind them, which code knows."""
        return int(self.group_in % self.unit)

    @cached_property
    def chunk_units(self) -> int:
        """Units of input channels between two sweeps over the pixels: all, but for those whose sums the output keeps
        meanwhile."""
        if self.shares_chunks:
            read = self.sums if self.widens else self.weight_type
            steps = chunk_steps(self.tile[0], self.lanes * read.itemsize, self.taps * self.unit)
            return steps // self.taps // self.unit
        if self.keeps_sums:
            return -(-chunk_channels(self.group_in, self.taps, self.unit, self.lanes) // self.unit)
        return self.units

    @property
    def keeps_sums(self) -> bool:
        """Whether the output can keep sums between two sweeps."""
        kept = self.sums == self.out.dtype and self.out.block == self.lanes and self.op.gate_parts == 1
        other = isinstance(self.op, ConvTranspose) or self.few_outputs or self.op.channel_scaled
        return kept and (self.packed[1] or self.packs_weights) and not other

    @cached_property
    def shares_chunks(self) -> bool:
        """Whether all pixels of a box are swept for a chunk of a tile's weights before the next (`rows/pace.py`)."""
        if self.decided:
            return self.decided[3]
        pixels, steps = math.prod(self.out.shape[2:]), self.group_in * self.taps
        plain = self.op.groups == 1 and self.packed[1] and not self.walks_taps
        plain = plain and (self.keeps_sums or self.could_keep_apart)
        return plain and share_chunks(self.isa, self.tile, pixels, steps)

    @cached_property
    def widens(self) -> bool:
        """Whether float16 weights of a tile are widened once for all pixels: where instructions that widen them take
        the place of multiply-adds, which is so where there are two of these a cycle."""
        if self.decided:
            return self.decided[4]
        plain = self.packed[1] and self.op.groups == 1 and not (self.few_outputs or self.in_words or self.walks_taps)
        return plain and self.isa.paces_weights and self.weight_type == FLOAT16 and self.has_many_tiles

    @property
    def has_many_tiles(self) -> bool:
        """Whether there are tiles of pixels enough for weights to be made ready for them in the workspace."""
        return -(-math.prod(self.out.shape[2:]) // self.tile[1]) >= COPIED_TILES

    @cached_property
    def packs_weights(self) -> bool:
        """Whether weights that are no constants are packed for all pixels of a box: each vector of them is gathered
        from as many places as it has lanes."""
        if self.decided:
            return self.decided[5]
        return not (self.packed[1] or self.few_outputs or self.in_words) and self.has_many_tiles

    @property
    def copies_weights(self) -> bool:
        """Whether tiles read weights from the workspace: times the factors of the input's channels, widened, or
        packed."""
        return (self.op.channel_scaled and self.packed[1]) or self.widens or self.packs_weights

    @property
    def could_keep_apart(self) -> bool:
        """Whether the workspace can keep sums between two sweeps, as those of words are no outputs."""
        return self.in_words and self.packed[1] and isinstance(self.op, Conv)

    @property
    def keeps_apart(self) -> bool:
        """Whether the workspace keeps sums between two sweeps."""
        return self.shares_chunks and self.could_keep_apart and self.chunks > 1

    @property
    def chunks(self) -> int:
        """Sweeps over the pixels of a box."""
        return -(-self.units // self.chunk_units)

    @property
    def taps(self) -> int:
        """Pixels of the window."""
        return math.prod(self.op.kernel)

    @cached_property
    def row_window(self) -> RowWindow:
        """The window along the row: of the innermost dimension, or one pixel where a box is flat."""
        return POINT if self.flat else windows(self.op, self.ins[0].shape[2:])[-1]

    @cached_property
    def tile(self) -> tuple[int, int]:
        """(OB, T) of `choose_tile`; equal for all shape classes, since they share the packed weights."""
        if self.decided:
            return self.decided[0]
        step = self.op.strides[-1] if isinstance(self.op, ConvTranspose) else 1
        pixels = math.prod(self.out.shape[2:]) if is_pointwise(self.op) else -(-self.out.shape[-1] // step)
        isa = left_registers(self.isa, self.integer) if self.in_words else self.isa
        ob, most = choose_tile(pixels, self.whole_blocks, self.shape_class[0], isa, self.sums, self.op.gate_parts)
        return ob, most if self.flat else choose_length(self.row_window, self.out.shape[-1], ob, most, isa)

    @property
    def finishes_late(self) -> bool:
        """Whether tiles' outputs are finished beside the next tile's products (`words/late_epilogue.py`)."""
        if not (self.isa.double_pumped and self.integer):
            return False
        one = is_pointwise(self.op) and self.tile[0] == self.chunks == self.op.gate_parts == 1
        plain = self.packed[1] and not (self.few_outputs or self.walks_taps)
        return (
            one
            and plain
            and LEAST_LATE_WORDS <= self.group_in <= (MOST_LATE_WORDS if self.epilogue.long else LEAST_LATE_WORDS)
        )

    @property
    def packs_outputs(self) -> bool:
        """Whether neighbouring pixels of a tile are rounded to bytes and packed together (`words/packed_pixels.py`)."""
        adjacent = self.out.strides[-1] == self.out.block == self.lanes and self.lanes in PACKS
        plain = self.integer and self.op.gate_parts == 1 and not self.isa.double_pumped
        return plain and adjacent and self.epilogue.packs

    @property
    def pairs_bytes(self) -> bool:
        """Whether products of bytes are those of sums of pairs (`words/paired_bytes.py`)."""
        x = self.ins[0]
        plain = self.op.groups == self.op.gate_parts == 1 and self.packed[1] and is_pointwise(self.op)
        return plain and self.isa.pairs_bytes and self.integer and x.strides[-1] == x.block == self.lanes

    @property
    def tiled_blocks(self) -> int:
        """`whole_blocks` up to whole tiles."""
        ob, _ = self.tile
        return -(-self.whole_blocks // ob) * ob

    @property
    def padded_blocks(self) -> int:
        """Blocks of output channels of a group as its packed constants have them."""
        return self.tiled_blocks + bool(self.few_outputs)

    @property
    def workspace(self) -> int:
        """Room for the weights of a tile and a chunk that are copied, or for what the pairs of all pixels sum to, and
        behind it the sums of all pixels by a tile of output channels."""
        width = self.tile[0] * self.lanes * self.sums.itemsize
        if self.keeps_apart or self.pairs_bytes:
            return self.kept_at + math.prod(self.out.shape[2:]) * width * self.keeps_apart
        return min(self.group_in, self.chunk_units * self.unit) * self.taps * width if self.copies_weights else 0

    @property
    def kept_at(self) -> int:
        """Bytes of the workspace before the sums of pixels: whole lines of what their pairs sum to."""
        return -(-math.prod(self.out.shape[2:]) * self.sums.itemsize // LINE) * LINE * self.pairs_bytes

    @property
    def can_prefetch_weights(self) -> bool:
        """See `Kernel`."""
        return self.op.groups == 1 and not self.few_outputs and self.packed[1] and not self.walks_taps

    def swept_channels(self, boxes: Boxes) -> np.ndarray:
        """As if no tap fell on padding."""
        ob, most = self.tile
        width = sum(run.repeat for run in tile_runs(self.row_window, self.row_class, most))
        blocks = -(-boxes.hi[:, 1] // self.lanes) - boxes.lo[:, 1] // self.lanes
        rows = boxes.extents[:, 0] * (1 if self.flat else boxes.extents[:, 2:-1].prod(axis=1))
        return rows * width * -(-blocks * self.op.gate_parts // ob) * self.group_in * self.taps

    @cached_property
    def epilogue(self) -> Epilogue:
        """What is applied to the sums."""
        found = Epilogue.of(self.op, self.ins, self.out, self.lanes)
        return found.joined() if self.flat else found
