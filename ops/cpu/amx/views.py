"""The operands of a product as images: three spatial dimensions, of which those that are not there have one pixel.

Rows of a matrix are the pixels of a line; its columns are channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from llvmlite import ir

from brickrt.ops.base import Op
from brickrt.ops.cpu.amx.sizes import LANES
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I1, Index
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul

DIMS = 3
N = TypeVar("N", bound=Index)


@dataclass(frozen=True)
class ImageView(ABC):
    """`x` times constants gives `out`. `kernel`, `strides`, `dilations`, `pads` and the strides and extents of `x` are
    those of the three dimensions."""

    op: Op
    x: Operand
    out: Operand

    @property
    @abstractmethod
    def depth(self) -> int:
        """K: channels of the input."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """Channels of the output."""

    @property
    def kernel(self) -> Sequence[int]:
        """The window's extents."""
        return (1,) * DIMS

    @property
    def strides(self) -> Sequence[int]:
        """From window to window."""
        return (1,) * DIMS

    @property
    def dilations(self) -> Sequence[int]:
        """From tap to tap."""
        return (1,) * DIMS

    @property
    def pads(self) -> Sequence[int]:
        """Before the first pixel."""
        return (0,) * DIMS

    @property
    @abstractmethod
    def extents(self) -> Sequence[Index]:
        """Pixels of the input."""

    @property
    @abstractmethod
    def steps(self) -> Sequence[Index]:
        """From pixel to pixel of the input, in elements."""

    @abstractmethod
    def batches(self, f: FunctionEmitter) -> list[tuple[ir.Value, ir.Value]]:
        """Ranges of the dimensions that number the images of a box."""

    @abstractmethod
    def pixels(self, f: FunctionEmitter) -> list[tuple[Index, Index]]:
        """The box's ranges of the three dimensions."""

    @abstractmethod
    def channels(self, f: FunctionEmitter) -> tuple[Index, Index]:
        """The box's output channels."""

    @abstractmethod
    def source(self, f: FunctionEmitter, batch: Sequence[Index]) -> Index:
        """Offset of an image of the input."""

    @abstractmethod
    def channel(self, f: FunctionEmitter, first: Index) -> Index:
        """From there to a channel that is a multiple of the lanes; those up to the next one are adjacent."""

    @abstractmethod
    def index(self, f: FunctionEmitter, batch: Sequence[Index], channel: Index, pixel: Sequence[Index]) -> list[Index]:
        """Index of an element of the output."""

    @property
    def adjacent(self) -> bool:
        """Whether outputs of pixels that lie side by side do so too."""
        return True

    def within(self, f: FunctionEmitter, channel: Index) -> Index:
        """Whether the box has channels of the vector that begins with one."""
        lo, hi = self.channels(f)
        behind = f.value(f.add(channel, LANES))
        return f.b.and_(f.b.icmp_signed("<", f.value(channel), hi), f.b.icmp_signed(">", behind, lo))

    def reached(self, f: FunctionEmitter, index: Sequence[Index]) -> Index:
        """Whether an output belongs to the box: always where pixels of the input have one each."""
        return I1(1)


class BlockedImages(ImageView):
    """Blocked images, as convolutions have them."""

    op: Conv | ConvTranspose

    def _three(self, values: Sequence[N], missing: N) -> list[N]:
        return [missing] * (DIMS - len(values)) + list(values)

    @property
    def depth(self) -> int:
        """Channels of the input."""
        return self.x.shape[1]

    @property
    def columns(self) -> int:
        """Channels of the output."""
        return self.out.shape[1]

    @property
    def extents(self) -> Sequence[Index]:
        """Spatial extents of the input."""
        return self._three(self.x.shape[2:], 1)

    @property
    def steps(self) -> Sequence[Index]:
        """Spatial strides of the input."""
        return self._three(self.x.strides[2:], 0)

    def batches(self, f: FunctionEmitter) -> list[tuple[ir.Value, ir.Value]]:
        """Images."""
        return [f.box(0)]

    def pixels(self, f: FunctionEmitter) -> list[tuple[Index, Index]]:
        """Spatial ranges of the box."""
        found = [f.box(d) for d in range(2, self.out.type.rank)]
        return [(0, 1)] * (DIMS - len(found)) + found

    def channels(self, f: FunctionEmitter) -> tuple[Index, Index]:
        """Channels of the box."""
        return f.box(1)

    def source(self, f: FunctionEmitter, batch: Sequence[Index]) -> Index:
        """An image of the input."""
        return f.mul(batch[0], self.x.strides[0])

    def channel(self, f: FunctionEmitter, first: Index) -> Index:
        """Blocks of channels lie apart."""
        return f.mul(f.div(first, self.x.block), self.x.strides[1])

    def index(self, f: FunctionEmitter, batch: Sequence[Index], channel: Index, pixel: Sequence[Index]) -> list[Index]:
        """An image, a channel, and as many spatial dimensions as there are."""
        return [batch[0], channel, *pixel[DIMS - (self.out.type.rank - 2) :]]


class ConvImages(BlockedImages):
    """A convolution."""

    @property
    def kernel(self) -> Sequence[int]:
        """The operator's."""
        return self._three(self.op.kernel, 1)

    @property
    def strides(self) -> Sequence[int]:
        """The operator's."""
        return self._three(self.op.strides, 1)

    @property
    def dilations(self) -> Sequence[int]:
        """The operator's."""
        return self._three(self.op.dilations, 1)

    @property
    def pads(self) -> Sequence[int]:
        """The operator's, before the first pixel."""
        return self._three(self.op.pads, 0)


class MatMulLines(ImageView):
    """[batch…, M, K] × [K, N]."""

    op: MatMul

    @property
    def depth(self) -> int:
        """K of the product."""
        return self.x.shape[-1]

    @property
    def columns(self) -> int:
        """Columns of the product."""
        return self.out.shape[-1]

    @property
    def extents(self) -> Sequence[Index]:
        """Rows are pixels of a line."""
        return (1, 1, self.x.shape[-2])

    @property
    def steps(self) -> Sequence[Index]:
        """From row to row."""
        return (0, 0, self.x.strides[-2])

    def batches(self, f: FunctionEmitter) -> list[tuple[ir.Value, ir.Value]]:
        """All dimensions but the last two."""
        return [f.box(d) for d in range(self.out.type.rank - 2)]

    def pixels(self, f: FunctionEmitter) -> list[tuple[Index, Index]]:
        """Rows of the box."""
        return [(0, 1), (0, 1), f.box(self.out.type.rank - 2)]

    def channels(self, f: FunctionEmitter) -> tuple[Index, Index]:
        """Columns of the box."""
        return f.box(self.out.type.rank - 1)

    def source(self, f: FunctionEmitter, batch: Sequence[Index]) -> Index:
        """The first factor may broadcast along batch dimensions."""
        pairs = zip(self.x.shape[:-2], self.x.strides[:-2], strict=True)
        strides = [0 if extent == 1 else stride for extent, stride in pairs]
        return f.dot(batch, [0] * (len(batch) - len(strides)) + strides)

    def channel(self, f: FunctionEmitter, first: Index) -> Index:
        """Elements of K are adjacent."""
        return first

    def index(self, f: FunctionEmitter, batch: Sequence[Index], channel: Index, pixel: Sequence[Index]) -> list[Index]:
        """A row and a column of a matrix."""
        return [*batch, pixel[-1], channel]
