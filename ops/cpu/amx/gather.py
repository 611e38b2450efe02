"""What a chunk reads, copied to the workspace: plane by plane, row by row, a unit of K of each pixel at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.amx.factors import split_pixel
from brickrt.ops.cpu.amx.scheme import AmxScheme
from brickrt.ops.cpu.amx.sizes import LANES, ROW_BYTES
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import BFLOAT16, I8, Index, memory_type, vector, zeros
from brickrt.ops.cpu.emit.sizes import Size
from brickrt.ops.cpu.products.words.bfloat_dot import HALF_WORD

BYTE = np.dtype(np.int8)


@dataclass(frozen=True)
class Chunk:
    """Rows and columns of outputs of one image. `first` are its first outputs along the three dimensions, `rows` and
    `columns` how many; `width` is what rows of its planes have, and from one line of a pixel to the next are `span`
    bytes."""

    batch: Sequence[Index]
    first: Sequence[Index]
    rows: Index
    columns: Index
    width: Index
    span: Index


class Gather:
    """Emits the copies. `x` is the input's address, `factors` that of the factors of its channels if it has any."""

    def __init__(self, kernel: AmxScheme, f: FunctionEmitter, area: ir.Value) -> None:
        self.k, self.f, self.area = kernel, f, area
        self.x = f.pointer(1)
        scaled = getattr(kernel.op, "channel_scaled", False)
        self.sweep: Index = 0
        self.span: Index = ROW_BYTES
        self.scales = f.pointer(kernel.op.main) if scaled else None

    def emit(self, chunk: Chunk, sweep: Index) -> None:
        """All planes, of a part of K."""
        self.sweep, self.span = sweep, chunk.span
        f, view = self.f, self.k.view
        rows = f.add(chunk.rows, self.k.halos[0])
        down, across = self.k.residues
        with f.loops([(0, view.kernel[0]), (0, len(down)), (0, len(across))]) as (tap, p, q):
            plane = f.add(f.mul(f.add(f.mul(tap, len(down)), p), len(across)), q)
            starts = [
                f.mul(chunk.first[0], view.strides[0]),
                f.add(f.mul(chunk.first[1], view.strides[1]), f.pick(down, f.value(p))),
                f.add(f.mul(chunk.first[2], view.strides[2]), f.pick(across, f.value(q))),
            ]
            z, y, x = (f.sub(start, pad) for start, pad in zip(starts, view.pads, strict=True))
            z = f.add(z, f.mul(tap, view.dilations[0]))
            with f.loop(0, rows) as row:
                line = f.add(f.mul(plane, rows), row)
                self.row(chunk, f.mul(line, chunk.width), z, f.add(y, f.mul(row, view.strides[1])), x)

    def row(self, chunk: Chunk, start: Index, z: Index, y: Index, x: Index) -> None:
        """A row of a plane, whose first pixel is number `start` of the workspace and reads (z, y, x)."""
        f, view, end = self.f, self.k.view, self.f.value(chunk.width)
        first, last = (0, end) if self.k.joins_rows else self.inside((z, y), x, end, view.strides[2])
        self.clear(start, 0, first)
        source = f.add(view.source(f, chunk.batch), f.dot((z, y, x), view.steps))
        whole, tail = divmod(view.depth, self.k.factors.unit)
        begin = f.mul(self.sweep, self.k.sweep)
        with f.loop(begin, f.minimum(f.add(begin, self.k.sweep), whole)) as unit:
            self.unit(chunk, start, source, unit, (first, last), self.k.factors.unit)
        if isinstance(tail, Size) or tail:
            with self.last_sweep(), f.loop(whole, self.k.units) as unit:
                self.unit(chunk, start, source, unit, (first, last), tail)
        self.clear(start, last, end)

    def inside(self, line: Sequence[Index], x: Index, count: Index, step: int) -> tuple[ir.Value, ir.Value]:
        """The first pixel that is on the input, of `count` pixels of a line from `x` on and `step` apart, and the
        first behind these; none are where the line is not."""
        f, extents = self.f, self.k.view.extents
        there = f.b.and_(*(f.b.icmp_unsigned("<", f.value(at), f.value(n)) for at, n in zip(line, extents)))
        first = f.minimum(f.maximum(0, self.over(f.sub(0, x), step)), count)
        last = f.maximum(f.minimum(count, self.over(f.sub(extents[2], x), step)), first)
        found = [f.b.select(there, f.value(at), f.value(count)) for at in (first, last)]
        return found[0], found[1]

    @contextmanager
    def last_sweep(self) -> Iterator[None]:
        """The body runs in the last part of K."""
        f, last = self.f, self.k.sweeps - 1
        if not last:
            yield
            return
        with f.when(f.b.icmp_signed("==", f.value(self.sweep), f.value(last))):
            yield

    def over(self, distance: Index, step: int) -> Index:
        """How many steps it takes to go so far."""
        return self.f.div(self.f.add(distance, step - 1), step)

    def pixel(self, number: Index) -> ir.Value:
        """The address of a pixel of the workspace."""
        return self.f.address(self.area, self.f.mul(number, self.k.pixel_bytes), BYTE)

    def clear(self, start: Index, first: Index, last: Index) -> None:
        """Zeros in some pixels of a row."""
        f, k = self.f, self.k
        with f.loop(0, k.lines) as line, f.loop(first, last) as at:
            place = f.address(self.pixel(f.add(start, at)), f.mul(line, self.span), BYTE)
            f.b.store(zeros(vector(I8, ROW_BYTES)), place, align=ROW_BYTES)

    def unit(
        self, chunk: Chunk, start: Index, source: Index, unit: Index, span: tuple[Index, Index], depth: int
    ) -> None:
        """`depth` elements of K of some pixels of a row."""
        f, k, view, dtype = self.f, self.k, self.k.view, self.k.view.x.dtype
        channels = [f.add(f.mul(unit, k.factors.unit), c) for c in range(0, k.factors.unit, LANES)]
        offsets = [view.channel(f, c) for c in channels]
        scales = [self.scale(chunk, c) for c in channels]
        step = f.mul(view.strides[2], view.steps[2])
        with f.loop(*span) as at:
            pixel = f.address(self.x, f.add(source, f.mul(at, step)), dtype)
            vectors = [self.vector(pixel, offsets[n], depth - n * LANES, scales[n]) for n in range(len(channels))]
            within = f.sub(unit, f.mul(self.sweep, k.sweep))
            to = f.address(self.pixel(f.add(start, at)), f.mul(f.mul(within, k.factors.parts), self.span), BYTE)
            for part, value in enumerate(split_pixel(f, k.factors, vectors)):
                f.b.store(value, f.address(to, f.mul(self.span, part), BYTE), align=ROW_BYTES)

    def vector(self, pixel: ir.Value, offset: Index, count: int, scale: ir.Value | None) -> ir.Value:
        """Elements of K as they lie in memory, of which `count` are there; zeros for others."""
        f, x = self.f, self.k.view.x
        dtype = HALF_WORD if x.dtype == BFLOAT16 and scale is None else x.dtype
        known = not isinstance(count, Size)
        if known and count <= 0:
            return zeros(vector(memory_type(dtype), LANES))
        inside = None if known and count >= LANES else f.tail_mask(count, LANES)
        value = f.load(pixel, offset, dtype, LANES, None if x.block > 1 else inside)
        if scale is not None:
            value = f.b.fmul(value, scale)
            value = f.narrow(value, dtype, LANES) if dtype == BFLOAT16 else value
        return value if inside is None else f.b.select(inside, value, zeros(value.type))

    def scale(self, chunk: Chunk, channel: Index) -> ir.Value | None:
        """The factors of LANES channels of the input."""
        if self.scales is None:
            return None
        f, operand = self.f, self.k.ins[self.k.op.main - 1]
        image = f.mul(chunk.batch[0], operand.strides[0]) if operand.shape[0] > 1 else 0
        at = f.add(image, f.mul(f.div(channel, operand.block), operand.strides[1]))
        return f.load(self.scales, at, operand.dtype, LANES)
