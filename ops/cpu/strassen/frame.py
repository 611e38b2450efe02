"""What the bodies of one and two levels of Strassen's scheme share: operands, masks, the seven products, stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, Index, vector, zeros
from brickrt.ops.cpu.emit.magnitudes import BITS
from brickrt.ops.cpu.emit.sizes import greatest, is_equal, least
from brickrt.ops.cpu.isa import AVX2_LANES
from brickrt.ops.cpu.operands.epilogue import offset_of
from brickrt.ops.cpu.products.register_tile import Accumulators, PackedStream
from brickrt.ops.cpu.products.rows.pace import share_asker
from brickrt.ops.cpu.products.spilled_tile import SpilledTile
from brickrt.ops.cpu.strassen.first_factors import FirstFactors
from brickrt.ops.cpu.strassen.scheme import LINE, StrassenScheme
from brickrt.ops.cpu.strassen.sizes import PRODUCTS

Masks = Sequence[ir.Value | None]  # per block of columns which lanes belong to the box, or whether the block does


class StrassenFrame:
    """Loads addresses first; outputs are finished and stored here."""

    def __init__(self, kernel: StrassenScheme, f: FunctionEmitter) -> None:
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

    def must_not_mix(self) -> ir.Value:
        """Whether `b` must not be mixed."""
        return self.f.b.icmp_signed("!=", self.f.load(self.b, self.k.flag_at, BITS), I32(0))

    def clear(self, at: Index, elements: Index) -> None:
        """Sets elements of the workspace, from number `at` on, to zero."""
        f, k = self.f, self.k
        with f.loop(0, elements, k.lanes) as i:
            f.store(self.zero, self.work, f.add(i, at), self.dtype, k.lanes)

    @property
    def zero(self) -> ir.Constant:
        """A vector of zeros."""
        return zeros(vector(FLOAT, self.k.lanes))

    def groups(self) -> tuple[Index, Index]:
        """Groups of columns that the box touches."""
        first, last = self.f.box(self.axis)
        return self.f.div(first, self.group), self.f.div(self.f.add(last, self.group - 1), self.group)

    def first_factors(self, corner: Sequence[Index], chunk: Index, b: ir.Value) -> None:
        """Computes those of a chunk of the matrix at `corner`; meanwhile panels at `b` are prefetched."""
        f, view, first = self.f, self.view, self.f.mul(chunk, self.k.chunk_depth)
        a = f.address(self.a, f.add(view.source(f, corner), view.depth_offset(f, first)), self.dtype)
        FirstFactors(self.k, f, a, self.work, b, f.sub(view.depth, first)).emit()

    def weight(self, row: Index, column: Index) -> ir.Value:
        """A vector of a row of `b` as it is, from a column on that begins a block."""
        f, k = self.f, self.k
        at = f.add(f.mul(row, k.padded_columns), column, k.factors_elements)
        return f.load(self.b, at, self.dtype, k.lanes)

    # ---- outputs

    def inside(self, column: Index) -> ir.Value:
        """Which lanes of the block of columns from `column` on belong to the box; if blocked, whether it does."""
        f, k = self.f, self.k
        lo, hi = f.box(self.axis)
        hi = f.minimum(hi, k.columns)
        if k.out.block > 1:
            reaches = f.b.icmp_signed("<", f.value(column), f.value(hi))
            return f.b.and_(reaches, f.b.icmp_signed(">=", f.value(column), f.value(lo))) if k.ragged else reaches
        end = f.tail_mask(f.sub(hi, column), k.lanes)
        return f.b.and_(end, f.b.not_(f.tail_mask(f.sub(lo, column), k.lanes))) if k.ragged else end

    def put(self, value: ir.Value, index: list[Index], mask: ir.Value | None) -> None:
        """A vector of sums of even columns, finished and stored."""
        sizes = self.f.load(self.b, self.f.add(self.k.sizes_at, index[self.axis]), self.dtype, self.k.lanes)
        self.put_sums(self.f.b.fmul(value, sizes), index, mask)

    def put_sums(self, value: ir.Value, index: list[Index], mask: ir.Value | None) -> None:
        """A vector of sums, finished and stored."""
        if mask is not None and self.k.out.block > 1:
            with self.f.when(mask):
                self.finish(value, index, None)
        else:
            self.finish(value, index, mask)

    def finish(self, value: ir.Value, index: list[Index], mask: ir.Value | None) -> None:
        """Bias, epilogue and store of a vector."""
        f, k = self.f, self.k
        if self.bias is not None:
            bias = f.load(self.bias, index[self.axis], self.dtype, k.lanes, None if k.packed[2] else mask)
            value = f.b.fadd(value, bias)
        value = self.epilogue.apply(value, index, mask)
        f.store(value, self.out, offset_of(f, k.out, index), k.out.dtype, k.lanes, mask)


class SevenProducts(SpilledTile, ABC):
    """The seven products of the last level, for a register tile of `count` rows of every part, from row `start` on.

    `b` is the address of their panels, `factor` the number of their first first factor. Where they are `looped`, the
    code of a product is emitted once.
    """

    looped: ClassVar[bool]

    def __init__(self, frame: StrassenFrame, start: Index, count: int, b: ir.Value, factor: Index) -> None:
        acc = Accumulators.create(frame.f, [frame.zero] * frame.blocks, count, frame.dtype, frame.k.lanes)
        super().__init__(acc, frame.work)
        self.frame, self.k = frame, frame.k
        self.start, self.count, self.b, self.factor = start, count, b, factor

    def products(self) -> None:
        """The accumulators hold P1, C11; P1, U2, U3, C21; P5, C12, where U2 = P1 + P6."""
        self.clear()
        if not self.looped:
            for product in range(PRODUCTS):
                self.multiply(product)
                self.after(product)
            return
        with self.f.loop(0, PRODUCTS) as number:
            self.multiply(number)
            for product in self.f.cases(number, PRODUCTS):
                self.after(product)

    def after(self, product: int) -> None:
        """From one product to the next."""
        u2, u3 = self.k.spills_at, self.k.spills_at + self.k.tile_elements
        match product:
            case 0:
                self.spill(u2)
                self.begin(0)
            case 1:
                self.leave(0)
                self.restore(u2)
            case 2:
                self.spill(u2)
            case 3:
                self.spill(u3)
                self.begin(2)
            case 4:
                self.leave(2)
                self.clear()
                self.begin(3)
            case 5:
                self.leave(3, u3)
                self.add(u2)
                self.begin(1)
            case 6:
                self.leave(1)

    @abstractmethod
    def begin(self, tile: int) -> None:
        """Before the last product of one of the tiles C11, C12, C21, C22."""

    @abstractmethod
    def leave(self, tile: int, plus: Index | None = None) -> None:
        """The accumulators hold one of these tiles, but for what is spilled at `plus`; they must stay as they are."""

    @abstractmethod
    def later(self) -> ir.Value:
        """Address of panels that are read later, which the tiles of rows share prefetching."""

    def rows_of(self, number: Index) -> ir.Value:
        """Address of the tile's rows of a product's first factor."""
        f, k = self.f, self.k
        at = f.add(f.mul(f.add(self.factor, number), k.factor_elements), f.mul(self.start, k.sum_stride))
        return f.address(self.work, at, self.frame.dtype)

    def multiply(self, number: Index) -> None:
        """Adds a product to the accumulators."""
        f, k, frame = self.f, self.k, self.frame
        base = f.address(self.b, f.mul(number, k.panel_stride), frame.dtype)
        channels = PRODUCTS * k.part_depth
        more, ask = self.prefetches(number)
        panel = PackedStream(f, base, frame.blocks, channels, frame.dtype, k.lanes, more, ask=ask)
        offsets = [t * k.sum_stride for t in range(self.count)]
        self.acc.multiply_add(self.rows_of(number), offsets, 1, k.part_depth, panel)

    def prefetches(self, number: Index) -> tuple[Callable[[Index], None] | None, Callable[[Index, int], None] | None]:
        """What emits the prefetches of a step of product `number`, and those of several steps (`PackedStream`): a line
        of the next product's rows, and lines of later panels, of which each tile of rows takes its share. By vectors of
        eight lanes tiles have no time for so many, and the processor itself fetches what lies in L2."""
        f, k, frame = self.f, self.k, self.frame
        even = k.isa.shares_chunks
        share, lines = self.evenly(number) if even else self.early(number)
        ask = share_asker(f, lines[0], share, frame.dtype) if even else None
        rows = None if k.lanes == AVX2_LANES else self.next_rows(number)

        def prefetch(c: Index) -> None:
            for line in [] if even else lines:
                f.prefetch(line, f.mul(c, share), frame.dtype, near=False)
            if rows is not None:
                f.prefetch(rows, f.mul(c, LINE), frame.dtype)

        return None if rows is None else prefetch, ask

    def next_rows(self, number: Index) -> ir.Value:
        """Address of the rows that are read after those of product `number`."""
        return self.rows_of(self.f.add(number, 1))

    def early(self, number: Index) -> tuple[Index, list[ir.Value]]:
        """The first four tiles ask for all panels: what they advance in a step, and where product `number` begins."""
        f, frame, tiles = self.f, self.frame, self.k.tiles
        share = frame.width // least(greatest(1, tiles.count), 4)
        apart = is_equal(tiles.count, 1) * LINE  # one tile alone prefetches all lines, others a line of their share
        mine = self.share_of(number, share)
        return share, [f.address(mine, n * apart, frame.dtype) for n in range(frame.width // LINE)]

    def evenly(self, number: Index) -> tuple[Index, list[ir.Value]]:
        """The same where all tiles ask for equal shares, a line in each step (`products/rows/pace.py`)."""
        share = least(LINE, -(-self.frame.width // greatest(1, self.k.tiles.count)))
        return share, [self.share_of(number, share)]

    def share_of(self, number: Index, share: Index) -> ir.Value:
        """Address of the tile's part of later panels, in product `number`."""
        f, k = self.f, self.k
        place = f.div(self.start, self.count)  # the tile's number, where there are few
        first = f.add(f.mul(place, PRODUCTS * k.part_depth), f.mul(number, k.part_depth))
        return f.address(self.later(), f.mul(first, share), self.frame.dtype)
