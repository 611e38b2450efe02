"""Direct convolution and transposed convolution, 1 to 3 dimensions: the kernel, and its packed constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.products.conv_body import ConvBody
from brickrt.ops.cpu.products.conv_scheme import ConvScheme
from brickrt.ops.cpu.products.few_outputs_body import FewOutputsBody
from brickrt.ops.cpu.products.words.paired_bytes import weight_pairs
from brickrt.ops.cpu.products.words.words import pack_words
from brickrt.ops.operators.conv import ConvTranspose
from brickrt.ops.operators.product_types import SUMS


class ConvKernel(ConvScheme):
    """A convolution whose register tiles hold channels of one group. Its packed weights are one stream per tile."""

    def pack_parts(self, i: int, array: np.ndarray) -> Sequence[np.ndarray]:
        """Weights as one stream per tile, bias up to whole tiles per group, epilogue constants as the operands say."""
        if i == 1:
            inputs = 0 if isinstance(self.op, ConvTranspose) else 1
            if not self.in_words:
                return self._pack_weights(array)
            words = [w.view(array.dtype) for w in self._pack_weights(pack_words(array, inputs))]
            return [*words, self._weight_pairs(array)] if self.pairs_bytes else words
        if i == 2 and self.op.bias:
            split = self._by_tiles(array).reshape(self.op.groups, -1)
            return [np.pad(split, [(0, 0), (0, self.padded_blocks * self.lanes - split.shape[1])])]
        return super().pack_parts(i, array)

    def packed_elements(self, i: int) -> int:
        """See `Kernel`."""
        padded = self.op.groups * self.padded_blocks * self.lanes
        if i == 1:
            few = self.few_outputs.ways if self.few_outputs else 0
            return padded * (self.taps * (self.group_in * self.word + few) + self.pairs_bytes * SUMS.itemsize)
        return padded if i == 2 and self.op.bias else super().packed_elements(i)

    def _pack_weights(self, w: np.ndarray) -> Sequence[np.ndarray]:
        """[M, C/g, k…] (transposed: [C, M/g, k…]) → [group, tile, channel unit, taps, channel, OB*lanes], flat.

        Those of a last block with few outputs follow.
        """
        g, c = self.op.groups, self.group_in
        if isinstance(self.op, ConvTranspose):
            w = np.moveaxis(w.reshape(g, c, self.group_out, self.taps), 2, 1)
        rows = self._by_tiles(w).reshape(g, -1, c, self.taps)
        if not self.few_outputs:
            return [self._pack_tiles(rows)]
        whole = self.whole_blocks * self.lanes
        return [self._pack_tiles(rows[:, :whole]), *self.few_outputs.pack(rows[0, whole:], self.unit)]

    def _weight_pairs(self, w: np.ndarray) -> np.ndarray:
        """What the pairs of each output channel sum to, up to whole tiles, as bytes."""
        sums = weight_pairs(w, 1)
        return np.pad(sums, (0, self.padded_blocks * self.lanes - len(sums))).view(w.dtype)

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
        """All blocks of output channels, the last in code of its own where it has few outputs."""
        ConvBody(self, f, FewOutputsBody(self, f, self.few_outputs) if self.few_outputs else None).emit()
