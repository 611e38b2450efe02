"""The code of a recurrent layer whose weights are bytes.

Before each step of time the last state of every sequence is rounded to 23 bits of its largest element, in three planes
of unsigned bytes, or to 16 bits, in two:

    state  ≈  (plane 0 + 256 · plane 1 + 65536 · (plane 2 - 64)) · unit,    unit = largest of the state / (2²² - 1)
    state  ≈  (plane 0 + 256 · (plane 1 - 128)) · unit,                     unit = largest of the state / (2¹⁵ - 1)

Words of four adjacent bytes of a plane are multiplied with words of weights and summed as integers: each plane has sums
of its own, which become one number behind the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.quantize import UNITS
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I8, I32, Index, fill, type_suffix, vector, zeros
from brickrt.ops.cpu.emit.variables import Variable
from brickrt.ops.cpu.products.words.byte_dot import ByteDot
from brickrt.ops.cpu.products.words.word_dot import Parts
from brickrt.ops.cpu.products.words.words import WORD
from brickrt.ops.cpu.recurrences.body import F32, U8, RecurrenceBody, Tile, TimeStep
from brickrt.ops.cpu.recurrences.scheme import MIDDLES, RecurrenceScheme
from brickrt.ops.operators.recurrence import BATCH

LEAST_MAXIMUM = 2.0**-100  # what the largest element counts as where all are less, so that nothing is divided by zero
SIGNLESS = 0x7FFFFFFF
BITS = 8  # of a byte


class ByteRecurrenceBody(RecurrenceBody):
    """Emits a recurrent layer whose weights are packed bytes."""

    def __init__(self, kernel: RecurrenceScheme, f: FunctionEmitter) -> None:
        super().__init__(kernel, f)
        if not kernel.packed[1]:
            raise ValueError(f"{kernel.op.name}: weights of bytes must be constants")
        self.dot = ByteDot.of(f, kernel.isa)
        self.planes = range(kernel.planes)
        self.middle = MIDDLES[kernel.planes] << BITS * self.planes[-1]  # of what all planes hold together

    # ---- the state in bytes

    def before_tiles(self, step: TimeStep) -> None:
        """Rounds the state of all sequences of the box."""
        f, (pointer, apart) = self.f, step.state
        with f.loop(*f.box(BATCH)) as b:
            state, room = f.address(pointer, f.mul(b, apart), F32), self.planes_of(b)
            largest = self.largest(state)
            top = self.middle - 1
            unit = f.b.fmul(largest, ir.Constant(FLOAT, float(np.float32(1 / top))))
            f.store(unit, self.unit_of(room), 0, F32)
            self.store_bytes(state, room, f.splat(f.b.fdiv(ir.Constant(FLOAT, float(top)), largest), self.k.lanes))

    def planes_of(self, b: Index) -> ir.Value:
        """Where the planes of a sequence lie."""
        return self.f.address(self.room_of(b), self.k.kept_bytes, U8)

    def unit_of(self, room: ir.Value) -> ir.Value:
        """Where the unit of a sequence's planes lies."""
        return self.f.address(room, self.k.planes * self.k.plane, U8)

    def largest(self, state: ir.Value) -> ir.Value:
        """The largest magnitude of a state, by its bits: NaN is larger than all numbers."""
        f, k = self.f, self.k
        kind = vector(I32, k.lanes)
        most = f.variable(f.b.bitcast(fill(vector(FLOAT, k.lanes), LEAST_MAXIMUM), kind))

        def look(column: Index, mask: ir.Value | None = None) -> None:
            bits = f.b.bitcast(f.load(state, column, F32, k.lanes, mask), kind)
            bits, before = f.b.and_(bits, fill(kind, SIGNLESS)), f.read(most)
            f.change(most, f.b.select(f.b.icmp_signed(">", bits, before), bits, before))

        self.all_vectors(look)
        return f.b.bitcast(f.intrinsic(f"llvm.vector.reduce.smax.{type_suffix(kind)}", I32, f.read(most)), FLOAT)

    def store_bytes(self, state: ir.Value, room: ir.Value, units: ir.Value) -> None:
        """Rounds a state to the planes; `units` is what elements are multiplied with."""
        f, k = self.f, self.k
        kind = vector(I32, k.lanes)
        begin = UNITS + self.middle % 2**22  # the middle of three planes is what UNITS has in its lowest bits

        def store(column: Index, mask: ir.Value | None = None) -> None:
            scaled = f.b.fmul(f.load(state, column, F32, k.lanes, mask), units)
            bits = f.b.bitcast(f.b.fadd(scaled, fill(scaled.type, begin)), kind)
            for p in self.planes:
                byte = f.b.trunc(f.b.lshr(bits, fill(kind, BITS * p)), vector(I8, k.lanes))
                f.store(byte, room, f.add(column, p * k.plane), U8, k.lanes, mask)

        self.all_vectors(store)

    def all_vectors(self, body: Callable[..., None]) -> None:
        """Calls `body` for the columns of a state, and with a mask for those that are no whole vector."""
        f, k = self.f, self.k
        whole, rest = divmod(k.hidden, k.lanes)
        if whole:
            with f.loop(0, whole * k.lanes, k.lanes) as column:
                body(column)
        if rest:
            body(whole * k.lanes, f.tail_mask(rest, k.lanes))

    # ---- products

    def tile(self, step: TimeStep, tiles: Sequence[Tile], rows: Sequence[Index]) -> None:
        """One register tile: the sums of all planes, then the states of each sequence."""
        f, k = self.f, self.k
        gates, rooms = range(len(step.gates)), [self.planes_of(b) for b in rows]
        weights = [partial(self.word, self.packed_weights(step, tile, WORD), len(gates)) for tile in tiles]
        sums = [[[self.begun_sums(word(0, g)) for g in gates] for word in weights] for _ in rows]
        with f.loop(0, k.words) as c:
            factors = [[self.dot.weight(word(f.add(c, 1), g)) for g in gates] for word in weights]
            for room, of_tiles in zip(rooms, sums, strict=True):
                planes = [self.dot.pixel(self.bytes_of(room, c, p)) for p in self.planes]
                for of_gates, factor in zip(of_tiles, factors, strict=True):
                    for variables, weight in zip(of_gates, factor, strict=True):
                        self.add_products(variables, planes, weight)
        for b, room, of_tiles in zip(rows, rooms, sums, strict=True):
            unit = f.splat(f.load(self.unit_of(room), 0, F32), k.lanes)
            for tile, of_gates in zip(tiles, of_tiles, strict=True):
                self.finish(step, tile, b, [self.total(variables, unit) for variables in of_gates])

    def word(self, words: ir.Value, gates: int, row: Index, gate: int) -> ir.Value:
        """A word of weights in each lane; those of row 0 are what sums begin with."""
        f, k = self.f, self.k
        return f.load(words, f.mul(f.add(f.mul(row, gates), gate), k.lanes), WORD, k.lanes)

    def bytes_of(self, room: ir.Value, c: Index, p: int) -> ir.Value:
        """Word `c` of a plane, in all lanes."""
        f = self.f
        return f.splat(f.load(f.address(room, p * self.k.plane, U8), c, WORD), self.k.lanes)

    def begun_sums(self, last: ir.Value) -> list[Variable]:
        """The sums of each plane at their beginning, that of the last one given."""
        nothing = zeros(vector(I32, self.k.lanes))
        return [self.f.variable(last if p == self.planes[-1] else nothing) for p in self.planes]

    def add_products(self, variables: Sequence[Variable], planes: Sequence[Parts], weight: Parts) -> None:
        """Adds the products of a word of each plane to its sums."""
        f = self.f
        for variable, plane in zip(variables, planes, strict=True):
            f.change(variable, self.dot.add(f.read(variable), plane, weight))

    def total(self, variables: Sequence[Variable], unit: ir.Value) -> ir.Value:
        """The sums of all planes as one, in float32."""
        f, kind = self.f, vector(FLOAT, self.k.lanes)
        found, *more = (f.b.sitofp(f.read(variable), kind) for variable in variables)
        for p, part in enumerate(more, 1):
            found = f.fma(part, fill(kind, float(1 << BITS * p)), found)
        return f.b.fmul(found, unit)
