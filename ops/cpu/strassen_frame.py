"""What the bodies of one and two levels of Strassen's scheme share: operands, masks, the seven products, stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llvmlite import ir

from brickrt.ops.cpu.emit import FLOAT, Fn, Index, vector
from brickrt.ops.cpu.epilogue import offset_of
from brickrt.ops.cpu.kept_tile import KeptTile
from brickrt.ops.cpu.products import Accumulators, PackedStream
from brickrt.ops.cpu.strassen_sums import FirstFactors

if TYPE_CHECKING:
    from brickrt.ops.cpu.strassen import StrassenKernel

PRODUCTS = 7
LINE = 16  # elements of a cache line
Masks = Sequence[ir.Value | None]  # per block of columns what of it belongs to the box: lanes, or whether it does


class StrassenFrame:
    def __init__(self, kernel: StrassenKernel, f: Fn) -> None:
        self.k, self.f = kernel, f
        self.view, self.dtype = kernel.view, kernel.out.dtype
        self.out, self.a, self.b = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(3) if kernel.op.bias else None
        self.epilogue = kernel.epilogue.bind(f)
        self.work = f.pointer(1 + len(kernel.ins))
        self.width = kernel.panel // kernel.part_depth
        self.blocks = self.width // kernel.lanes
        self.group = 2**kernel.levels * self.width
        self.axis = self.view.dim % kernel.out.type.rank

    @property
    def zero(self) -> ir.Constant:
        return ir.Constant(vector(FLOAT, self.k.lanes), None)

    def groups(self) -> tuple[Index, Index]:
        """Groups of columns that the box touches."""
        first, last = self.f.box(self.axis)
        return self.f.div(first, self.group), self.f.div(self.f.add(last, self.group - 1), self.group)

    def first_factors(self, corner: Sequence[Index], chunk: Index, b: ir.Value) -> None:
        """Of the matrix at `corner`; meanwhile what is at `b` is asked for."""
        f, view, first = self.f, self.view, self.f.mul(chunk, self.k.chunk_depth)
        a = f.address(self.a, f.add(view.source(f, corner), view.depth_offset(f, first)), self.dtype)
        FirstFactors(self.k, f, a, self.work, b, f.sub(view.depth, first)).emit()

    # ---- outputs

    def inside(self, column: Index) -> ir.Value:
        """Of the block of columns from `column` on: the lanes that belong to the box, or whether a blocked one does."""
        f, k = self.f, self.k
        lo, hi = f.box(self.axis)
        hi = f.minimum(hi, k.columns)
        if k.out.block > 1:
            reaches = f.b.icmp_signed("<", f.value(column), f.value(hi))
            return f.b.and_(reaches, f.b.icmp_signed(">=", f.value(column), f.value(lo))) if k.ragged else reaches
        end = f.tail_mask(f.sub(hi, column), k.lanes)
        return f.b.and_(end, f.b.not_(f.tail_mask(f.sub(lo, column), k.lanes))) if k.ragged else end

    def put(self, value: ir.Value, index: list[Index], mask: ir.Value | None) -> None:
        """A vector of sums, finished and stored."""
        if mask is not None and self.k.out.block > 1:
            with self.f.when(mask):
                self.finish(value, index, None)
        else:
            self.finish(value, index, mask)

    def finish(self, value: ir.Value, index: list[Index], mask: ir.Value | None) -> None:
        f, k = self.f, self.k
        if self.bias is not None:
            bias = f.load(self.bias, index[self.axis], self.dtype, k.lanes, None if k.packed[2] else mask)
            value = f.b.fadd(value, bias)
        value = self.epilogue.apply(value, index, mask)
        f.store(value, self.out, offset_of(f, k.out, index), k.out.dtype, k.lanes, mask)


class SevenProducts(KeptTile, ABC):
    """A register tile of `count` rows from `start` of every part on, and the seven products of the last level.

    `b` are their panels; their first factors are those from number `factor` on.
    """

    def __init__(self, frame: StrassenFrame, start: Index, count: int, b: ir.Value, factor: Index) -> None:
        acc = Accumulators.create(frame.f, [frame.zero] * frame.blocks, count, frame.dtype, frame.k.lanes)
        super().__init__(acc, frame.work)
        self.frame, self.k = frame, frame.k
        self.start, self.count, self.b, self.factor = start, count, b, factor

    def products(self) -> None:
        """The accumulators hold P1, C11; P1, U2, U3, C21; P5, C12, where U2 = P1 + P6."""
        k = self.k
        u2, u3 = k.kept_at, k.kept_at + k.tile_elements
        self.clear()
        self.multiply(0)
        self.keep(u2)
        self.begin(0)
        self.multiply(1)
        self.leave(0)
        self.restore(u2)
        self.multiply(2)
        self.keep(u2)
        self.multiply(3)
        self.keep(u3)
        self.begin(2)
        self.multiply(4)
        self.leave(2)
        self.clear()
        self.begin(3)
        self.multiply(5)
        self.leave(3, u3)
        self.add(u2)
        self.begin(1)
        self.multiply(6)
        self.leave(1)

    @abstractmethod
    def begin(self, tile: int) -> None:
        """Before the last product of one of the tiles C11, C12, C21, C22."""

    @abstractmethod
    def leave(self, tile: int, plus: int | None = None) -> None:
        """One of these tiles is in the accumulators, less what is kept at `plus`; they stay as they are."""

    @abstractmethod
    def ahead(self, number: int, c: Index) -> None:
        """Asks for what comes later, in a step of a product."""

    def rows_of(self, number: Index) -> Index:
        """Where the tile's rows of a product's first factor lie in the workspace."""
        f, k = self.f, self.k
        return f.add(f.mul(f.add(self.factor, number), k.factor_elements), f.mul(self.start, k.sum_stride))

    def multiply(self, number: int) -> None:
        f, k, frame = self.f, self.k, self.frame
        base = f.address(self.b, number * k.panel, frame.dtype)
        channels = PRODUCTS * k.part_depth
        panel = PackedStream(f, base, frame.blocks, channels, frame.dtype, k.lanes, lambda c: self.ahead(number, c))
        offsets = [t * k.sum_stride for t in range(self.count)]
        self.acc.multiply_add(f.address(frame.work, self.rows_of(number), frame.dtype), offsets, 1, k.part_depth, panel)

    def ask(self, b: ir.Value, parts: Sequence[int], number: int, c: Index) -> None:
        """Asks for a line of the panels at `b` in each step: all tiles of rows, of so many each, ask for all of them,
        and each for its own of the next product's rows."""
        f, k, frame = self.f, self.k, self.frame
        share = -(-frame.width // len(parts))
        step = f.add(f.mul(f.div(self.start, parts[0]), PRODUCTS * k.part_depth), number * k.part_depth, c)
        for n in range(0, share, LINE):
            f.prefetch(b, f.add(f.mul(step, share), n), frame.dtype, near=False)
        f.prefetch(frame.work, f.add(self.rows_of(number + 1), f.mul(c, LINE)), frame.dtype)
