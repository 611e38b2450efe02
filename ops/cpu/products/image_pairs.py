"""What the pairs of an image's pixels sum to, for all pixels of a box, before a pointwise convolution reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I32, I64, Index, vector_constant
from brickrt.ops.cpu.products.conv_scheme import ConvScheme
from brickrt.ops.cpu.products.words.paired_bytes import PixelPairs
from brickrt.ops.cpu.products.words.words import WORD

PIXELS_AT_A_TIME = 4  # whose blocks of eight channels a vector holds
Ranges = Sequence[tuple[Index, Index]]


class ImagePairs:
    """Emits them, in the order of the pixels: of rows, or of a box whose rows are one."""

    def __init__(
        self,
        kernel: ConvScheme,
        f: FunctionEmitter,
        x: ir.Value,
        boxes: Ranges,
        pairs: PixelPairs,
        row_number: Callable[[Sequence[Index]], Index],
    ) -> None:
        self.k, self.f, self.x, self.boxes, self.pairs, self.row_number = kernel, f, x, boxes, pairs, row_number
        self.whole, self.tail = divmod(kernel.group_in, kernel.unit)

    def emit(self, n: Index) -> None:
        """All pixels of an image: four at a time, the last of them again, or one by one where there are fewer."""
        f, x = self.f, self.k.x
        with self.rows(n) as (row, first, count):
            several = f.b.icmp_signed(">=", f.value(count), I64(PIXELS_AT_A_TIME))
            with f.when(several), f.loop(0, count, PIXELS_AT_A_TIME) as i:
                at = f.minimum(i, f.sub(count, PIXELS_AT_A_TIME))
                self.group(f.address(row, f.mul(at, x.strides[-1]), x.dtype), f.add(first, at), PIXELS_AT_A_TIME)
            with f.when(f.b.not_(several)), f.loop(0, count) as i:
                self.group(f.address(row, f.mul(i, x.strides[-1]), x.dtype), f.add(first, i), 1)

    @contextmanager
    def rows(self, n: Index) -> Iterator[tuple[ir.Value, Index, Index]]:
        """The address of each row, the number of its first pixel, and how many it has."""
        f, x = self.f, self.k.x
        lo, hi = self.boxes[-1]
        count = f.sub(hi, lo)
        start = f.add(f.mul(n, x.strides[0]), f.mul(lo, x.strides[-1]))
        if self.k.flat:
            for (low, high), stride in zip(self.boxes[:-1], x.strides[2:-1], strict=True):
                start, count = f.add(start, f.mul(low, stride)), f.mul(count, f.sub(high, low))
            yield f.address(self.x, start, x.dtype), 0, count
            return
        with f.loops(self.boxes[:-1]) as at:
            first = f.mul(self.row_number(at), count)
            yield f.address(self.x, f.add(start, f.dot(at, x.strides[2:-1])), x.dtype), first, count

    def group(self, pixel: ir.Value, number: Index, count: int) -> None:
        """`count` pixels that lie side by side."""
        f, k, lanes = self.f, self.k, self.k.lanes
        words = lanes // PIXELS_AT_A_TIME
        mask = None if count == PIXELS_AT_A_TIME else f.tail_mask(words, lanes)

        def load(unit: Index) -> ir.Value:
            return f.load(pixel, f.mul(unit, k.x.strides[1]), WORD, lanes, mask)

        tail = None
        if self.tail:
            kept = [-int(lane % words < self.tail) for lane in range(lanes)]
            tail = f.b.and_(load(self.whole), vector_constant(I32, tuple(kept)))
        total = self.pairs.summed(load, self.whole, tail)
        each = [f.shuffle(total, total, range(lane, lanes, words)) for lane in range(words)]
        sums = each[0]
        for other in each[1:]:
            sums = f.b.add(sums, other)
        if count == PIXELS_AT_A_TIME:
            f.store(sums, self.pairs.start, number, WORD, PIXELS_AT_A_TIME)
            return
        f.store(f.b.extract_element(sums, I32(0)), self.pairs.start, number, WORD)
