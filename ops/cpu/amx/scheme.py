"""What identifies a kernel of tile registers, and the sizes that follow: all but its code.

A box is cut in chunks of rows and columns of pixels. What a chunk reads is copied to the workspace first, in the form
that tiles take: 64 bytes of channels of all pixels, then the next ones; padding as zeros. Windows with strides read one
residue of pixels each, so each residue is an image of its own there, which windows sweep without strides:

    stride 2, taps 0 1 2:   0 2 4 6 …  read by taps 0 and 2        planes: depth tap × residue down × residue across
                            1 3 5 7 …  read by tap 1

A tile's 16 pixels lie side by side in a plane; it goes on into the next row, over the pixels between them that are no
outputs. So tiles are full whatever the width.

A long K is swept in parts, each of which is copied when its turn comes: what a chunk reads of it and a tile's weights
stay in L2 and in L1. Between two parts the workspace keeps the sums.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from brickrt.ops.base import Op
from brickrt.ops.cpu.amx.factors import split_weights
from brickrt.ops.cpu.amx.sizes import (
    AREA_BYTES,
    ASKS,
    LANES,
    PLANE_PIXELS,
    ROW_BYTES,
    ROWS,
    TILE_BYTES,
    Factors,
    factors_of,
)
from brickrt.ops.cpu.amx.spread import SpreadView, cuts_windows
from brickrt.ops.cpu.amx.views import DIMS, ConvImages, ImageView, MatMulLines
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.cpu.operands.epilogue import Epilogue
from brickrt.ops.cpu.operands.operand_access import access
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.product_types import SUMS
from brickrt.ops.types import Boxes

PIXEL_TILES, CHANNEL_TILES = 2, 2  # tile registers of pixels and of output channels that are multiplied at a time
PIXELS = PIXEL_TILES * ROWS
OUTPUTS_AT_A_TIME = 4  # that share what their addresses take
IMAGE_VIEWS: dict[type[Op], type[ImageView]] = {MatMul: MatMulLines, Conv: ConvImages, ConvTranspose: SpreadView}
KEPT_BYTES = 1 << 19  # for the sums of a chunk while parts of K follow
LEAST_CHUNK_COLUMNS = 32


@dataclass(frozen=True)
class AmxScheme(Kernel):
    """`shape_class` is (ragged, cut): whether boxes cut columns of a matrix inside vectors, and windows of a transposed
    convolution between outputs."""

    op: Product

    sized: ClassVar[bool] = True
    compiles_quickly: ClassVar[bool] = True

    @classmethod
    def classify(
        cls, op: Op, ins: Sequence[Operand], out: Operand, boxes: Boxes, isa: Isa
    ) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """All boxes have one class."""
        ragged = False
        if out.block == 1:
            ends = np.concatenate([boxes.lo[:, -1], boxes.hi[:, -1]])
            ragged = bool(np.any(ends % LANES))
        cut = cuts_windows(op, boxes, out.shape[2:])
        return np.zeros(len(boxes), np.int64), [(int(ragged), int(cut))]

    @property
    def knows_channels(self) -> bool:
        """Columns of weights are channels of images, and the last dimension of matrices."""
        return True

    def open_dims(self, i: int | None) -> Sequence[int]:
        """See `Kernel`; weights are constants."""
        if i is not None and 0 < i < self.op.main:
            return ()
        rank = (self.out if i is None else self.ins[i]).rank
        return range(rank - 1) if isinstance(self.op, MatMul) else super().open_dims(i)

    @property
    def ragged(self) -> bool:
        """Whether vectors of outputs may be cut."""
        return bool(self.shape_class[0])

    @property
    def cut(self) -> bool:
        """Whether outputs of an input pixel may not belong to a box."""
        return bool(self.shape_class[1])

    @cached_property
    def view(self) -> ImageView:
        """The operands as images."""
        return IMAGE_VIEWS[type(self.op)](self.op, self.ins[0], self.out)

    @cached_property
    def factors(self) -> Factors:
        """How elements become words."""
        return factors_of(self.op, self.ins[0].dtype, self.ins[1].dtype)

    @property
    def sums(self) -> np.dtype:
        """The type of sums."""
        return SUMS if self.ins[0].dtype == np.uint8 else np.dtype(np.float32)

    @cached_property
    def epilogue(self) -> Epilogue:
        """What is applied to the sums."""
        return Epilogue.of(self.op, self.ins, self.out, self.lanes)

    # ---- weights of later kernels

    @property
    def can_prefetch_weights(self) -> bool:
        """See `Kernel`."""
        return True

    def swept_channels(self, boxes: Boxes) -> np.ndarray:
        """ASKS for each step of a group of tiles."""
        extents, matrix = boxes.extents, isinstance(self.op, MatMul)
        columns, images = (extents[:, -1], 1) if matrix else (extents[:, 1], extents[:, 0])
        outputs = extents.prod(axis=1) // np.maximum(columns * images, 1)
        groups = images * -(-outputs // PIXELS) * -(-columns // (CHANNEL_TILES * LANES))
        return ASKS * groups * self.taps * self.units

    # ---- K

    @property
    def units(self) -> int:
        """Rows of tiles that K takes."""
        return -(-self.view.depth // self.factors.unit)

    @property
    def taps(self) -> int:
        """Pixels of the window."""
        return math.prod(self.view.kernel)

    @property
    def sweep(self) -> int:
        """Units of K that are swept at a time."""
        return -(-self.units // -(-self.units // self.most_units))

    @property
    def most_units(self) -> int:
        """Units of K that there is room for."""
        return max(1, AREA_BYTES // (PLANE_PIXELS * self.planes * self.factors.parts * ROW_BYTES))

    @property
    def sweeps(self) -> int:
        """Parts that K is swept in."""
        return -(-self.units // self.sweep)

    @property
    def lines(self) -> int:
        """Lines that a pixel takes in the workspace: those of a part of a unit of all pixels lie together."""
        return self.sweep * self.factors.parts

    @property
    def pixel_bytes(self) -> int:
        """From pixel to pixel in the workspace."""
        return ROW_BYTES

    # ---- outputs

    @property
    def run(self) -> int:
        """Outputs that are finished in a step over K, so that those of a group take no more steps than there are."""
        steps = self.taps * self.units
        return -(-PIXELS // (OUTPUTS_AT_A_TIME * steps)) * OUTPUTS_AT_A_TIME if self.sweeps == 1 else PIXELS

    @property
    def joins_rows(self) -> bool:
        """Whether rows of a box may be walked as one: each output reads a pixel that lies where it does."""
        op, images = self.op, self.out.type.rank > DIMS
        pointwise = isinstance(op, Conv) and not any((*op.pads, *op.pads_end)) and {*op.kernel, *op.strides} == {1}
        return images and pointwise and self.factors.parts == 1

    @property
    def walked(self) -> list[Sequence[int]]:
        """Strides of what is read and written with the pixels of outputs."""
        e = self.epilogue
        return [self.ins[0].strides, self.out.strides, *(access(operand, self.out).strides for operand in e.ins)]

    # ---- planes

    @property
    def residues(self) -> list[list[int]]:
        """The residues of pixels that taps read, of each dimension but the first."""
        window = zip(self.view.kernel[1:], self.view.strides[1:], self.view.dilations[1:], strict=True)
        return [sorted({tap * step % stride for tap in range(taps)}) for taps, stride, step in window]

    @property
    def halos(self) -> list[int]:
        """Pixels of a plane beyond those of the first taps, down and across."""
        window = zip(self.view.kernel[1:], self.view.strides[1:], self.view.dilations[1:], strict=True)
        return [(taps - 1) * step // stride for taps, stride, step in window]

    @property
    def planes(self) -> int:
        """Planes of a chunk."""
        return self.view.kernel[0] * math.prod(len(found) for found in self.residues)

    @property
    def plane_pixels(self) -> int:
        """Pixels of a plane, at most, unless one row of a few columns has more."""
        return AREA_BYTES // (self.planes * self.lines * self.pixel_bytes)

    def span(self, f: FunctionEmitter, pixels: Index) -> Index:
        """Bytes from one line of a pixel to the next, where planes have so many pixels: tiles read some beyond."""
        return f.mul(f.add(pixels, PIXELS), self.pixel_bytes)

    @property
    def kept_bytes(self) -> int:
        """Bytes of sums of a pixel and a tile of output channels."""
        return CHANNEL_TILES * ROW_BYTES

    @property
    def kept_pixels(self) -> int:
        """Pixels whose sums there is room for, of one tile of output channels."""
        return KEPT_BYTES // self.kept_bytes

    @property
    def narrow(self) -> int:
        """Columns of a chunk, at least, where a box has as many."""
        return LEAST_CHUNK_COLUMNS

    # ---- weights: [tile of output channels][tap][unit of K][part][block][words][lanes], 1 KiB each block

    @property
    def blocks(self) -> int:
        """Vectors of output channels."""
        return -(-self.view.columns // LANES)

    @property
    def step_bytes(self) -> int:
        """Bytes of weights of a block for a unit of K at a tap."""
        return self.factors.weight_parts * TILE_BYTES

    @property
    def block_bytes(self) -> int:
        """Bytes of weights of a block."""
        return self.taps * self.units * self.step_bytes

    # ---- workspace

    @property
    def area_at(self) -> int:
        """Bytes before the planes: sums of a group of tiles. Sums that are kept lie behind the planes."""
        return PIXEL_TILES * CHANNEL_TILES * TILE_BYTES

    @property
    def most_outputs(self) -> tuple[int, int]:
        """Rows and columns of the largest box."""
        if isinstance(self.op, MatMul):
            return 1, self.out.shape[-2]
        shape = self.ins[0].shape if isinstance(self.op, ConvTranspose) else self.out.shape
        return (shape[-2] if len(shape) > DIMS else 1), shape[-1]

    @property
    def workspace(self) -> int:
        """Sums, planes, what tiles read beyond the last plane, and sums that are kept."""
        (rows, columns), (down, across) = self.most_outputs, self.halos
        narrow = (1 + down) * (min(columns, LEAST_CHUNK_COLUMNS) + across)
        pixels = int(min((rows + down) * (columns + across), max(narrow, self.plane_pixels)))
        area = (self.planes * pixels + PIXELS) * self.lines * self.pixel_bytes
        tile = (pixels + PIXELS) * self.kept_bytes
        kept = min(tile * -(-self.blocks // CHANNEL_TILES), max(tile, KEPT_BYTES)) if self.sweeps > 1 else 0
        return self.area_at + area + kept

    # ---- constants

    def pack(self, i: int, array: np.ndarray) -> np.ndarray:
        """Weights in tiles, the bias up to whole blocks."""
        if i == 1:
            return self._tiles(array)
        if i == 2 and self.op.bias:
            each = self.blocks * LANES // self.repeats
            return np.tile(np.pad(array.astype(self.sums), (0, each - len(array))), self.repeats)
        return super().pack(i, array)

    def packing(self, i: int) -> Hashable:
        """See `Kernel`: columns and K."""
        return super().packing(i), self.view.columns, self.view.depth

    def packed_elements(self, i: int) -> int:
        """See `Kernel`."""
        if i == 1:
            return self.blocks * self.block_bytes // self.ins[1].dtype.itemsize
        each = self.sums.itemsize // self.ins[i].dtype.itemsize
        return each * self.blocks * LANES if i == 2 and self.op.bias else super().packed_elements(i)

    def _tiles(self, array: np.ndarray) -> np.ndarray:
        """[M, C, k…] or [K, N] as tiles read them."""
        factors, taps, depth = self.factors, self.taps, self.view.depth
        kept = np.zeros((taps, self.units * factors.unit, self.blocks * LANES), array.dtype)
        kept[:, :depth, : self.view.columns] = self.by_tap(array)
        parts = [
            part.reshape(taps, self.units, ROWS, -1) for part in split_weights(factors, kept.reshape(-1, kept.shape[2]))
        ]
        words = np.stack(parts, axis=2)  # [taps, units, parts, ROWS, columns]
        end = (self.blocks - self.blocks % CHANNEL_TILES) * LANES
        return np.concatenate([self._streams(words[..., :end], CHANNEL_TILES), self._streams(words[..., end:], 1)])

    @property
    def repeats(self) -> int:
        """Taps whose columns lie one behind the other."""
        return math.prod(self.op.kernel) if isinstance(self.op, ConvTranspose) else 1

    def by_tap(self, array: np.ndarray) -> np.ndarray:
        """[M, C, k…] or [K, N] as [taps, K, columns]."""
        if isinstance(self.op, MatMul):
            return array[None]
        if isinstance(self.op, ConvTranspose):
            c, m = array.shape[:2]
            taps = np.zeros((c, self.repeats, self.view.columns // self.repeats), array.dtype)
            taps[:, :, :m] = array.reshape(c, m, -1).transpose(0, 2, 1)
            return taps.reshape(1, c, -1)
        return array.reshape(array.shape[0], self.view.depth, self.taps).transpose(2, 1, 0)

    def _streams(self, words: np.ndarray, blocks: int) -> np.ndarray:
        """Streams of tiles of so many blocks, one behind the other, as the elements of the weights."""
        split = words.reshape(*words.shape[:-1], -1, blocks, LANES)
        ordered = np.moveaxis(split, (4, 5), (0, 4))  # [stream, taps, units, parts, block, ROWS, lanes]
        return np.ascontiguousarray(ordered).reshape(-1).view(self.ins[1].dtype)
