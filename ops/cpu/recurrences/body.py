"""The code of a recurrent layer.

In each step a register tile has the sums of all gates for one or two vectors of a state's elements and some sequences.
The last state before the step is read element by element, where it was written: from the output, or from where states
begin. Few sequences have more vectors, since multiply-adds to one sum wait for each other.

Where an operator resets its state, the gates before the last go over all vectors first. They leave their products and
the reset state of each sequence in the workspace, from where the last gate takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.expressions import emit_expr
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I64, Index, vector, zeros
from brickrt.ops.cpu.recurrences.scheme import FLOAT_BYTES, RecurrenceScheme
from brickrt.ops.operators.recurrence import BATCH, DIRECTION

F32, U8 = np.dtype(np.float32), np.dtype(np.uint8)
Spread = tuple[ir.Value, Index]
Weight = Callable[[Index, int], ir.Value]  # (element of the state, gate) → a vector of what it is multiplied with


@dataclass(frozen=True)
class TimeStep:
    """A step of time in a direction: `before` has, for each state, its address for the first sequence and how far it
    is to the next one, as it was before the step. The weights of `gates` multiply `state`, which lies in the same way.
    """

    direction: Index
    time: Index
    before: Sequence[Spread]
    gates: range
    state: Spread


@dataclass(frozen=True)
class Tile:
    """A vector of a state's elements, of which those of `mask` exist, or all."""

    number: Index
    mask: ir.Value | None = None


class RecurrenceBody:
    """Emits a recurrent layer."""

    def __init__(self, kernel: RecurrenceScheme, f: FunctionEmitter) -> None:
        self.k, self.f = kernel, f
        op = kernel.op
        self.out, self.products, self.weights = (f.pointer(i) for i in range(3))
        self.bias = f.pointer(3) if op.bias else None
        self.scale = f.pointer(3 + op.bias) if op.scaled else None
        self.mask = f.pointer(op.main) if op.masked else None
        self.initial = [f.pointer(1 + op.main + s) for s in range(op.states)]
        self.room = f.pointer(1 + len(kernel.ins) + kernel.extra_pointers) if kernel.room else None
        self.first = f.box(BATCH)[0]

    def emit(self) -> None:
        """Directions, then time, then gates that multiply the same."""
        f, k = self.f, self.k
        with f.loop(*f.box(DIRECTION)) as d, f.loop(0, k.out.shape[1]) as i:
            step = self.step(d, i)
            self.all_tiles(step)
            for gates in k.gate_ranges[1:]:
                state = self.kept(0, k.op.gates - 1), k.room // FLOAT_BYTES
                self.all_tiles(replace(step, gates=gates, state=state))

    def all_tiles(self, step: TimeStep) -> None:
        """All vectors of elements, some at a time."""
        f, k = self.f, self.k
        whole, rest = divmod(k.hidden, k.lanes)
        abreast = k.tiles_abreast(step.gates)
        self.before_tiles(step)
        with f.loop(0, whole // abreast) as some:
            self.sequences(step, [Tile(f.add(f.mul(some, abreast), n)) for n in range(abreast)])
        tiles = [Tile(n) for n in range(whole - whole % abreast, whole)]
        tiles += [Tile(whole, f.tail_mask(rest, k.lanes))] if rest else []
        if tiles:
            self.sequences(step, tiles)

    def before_tiles(self, step: TimeStep) -> None:
        """What is done once before the tiles of a step's gates."""

    def room_of(self, b: Index) -> ir.Value:
        """Where the room of a sequence begins."""
        f = self.f
        return f.address(self.room, f.mul(f.sub(b, self.first), self.k.room), U8)

    def kept(self, b: Index, gate: int) -> ir.Value:
        """Where a sequence's products of a gate before the last are left, or the reset state in place of the last's."""
        return self.f.address(self.room_of(b), gate * self.k.tiles * self.k.lanes, F32)

    def step(self, d: Index, i: Index) -> TimeStep:
        """TimeStep number `i` of a direction."""
        f, k = self.f, self.k
        last = f.sub(k.out.shape[1], 1)
        ahead = f.pick([int(not back) for back in k.op.backward], f.value(d))

        def place(i: Index) -> Index:
            if isinstance(ahead, int):
                return i if ahead else f.sub(last, i)
            return f.b.select(f.b.icmp_signed("!=", f.value(ahead), I64(0)), f.value(i), f.value(f.sub(last, i)))

        time, former = place(i), place(f.sub(i, 1))
        first = f.b.icmp_signed("==", f.value(i), I64(0))
        before = [self.state_before(s, d, former, first) for s in range(k.op.states)]
        return TimeStep(d, time, before, k.gate_ranges[0], before[-1])

    def state_before(self, s: int, d: Index, former: Index, first: ir.Value) -> Spread:
        """Where a state lies that step `former` wrote, or that the first step begins with."""
        f, k = self.f, self.k
        initial, strides = k.ins[k.op.main + s], k.out.strides
        start = f.address(self.initial[s], f.mul(d, initial.strides[0]), F32)
        written = f.address(self.out, f.dot([s, former, d], strides[:3]), F32)
        apart = f.b.select(first, f.value(initial.strides[1]), f.value(strides[3]))
        return f.b.select(first, start, written), apart

    def sequences(self, step: TimeStep, tiles: Sequence[Tile]) -> None:
        """Some vectors of elements of all sequences of the box."""
        f, k = self.f, self.k
        start, hi = f.box(BATCH)
        for rows in k.row_tiles(step.gates):
            end = f.add(start, f.mul(f.div(f.sub(hi, start), rows), rows)) if rows > 1 else hi
            with f.loop(start, end, rows) as b:
                several = len(tiles) * rows * k.sums_each(step.gates) <= k.sums
                for part in [tiles] if several else [[tile] for tile in tiles]:
                    self.tile(step, part, [f.add(b, t) for t in range(rows)])
            start = end

    def weight(self, step: TimeStep, tile: Tile) -> Weight:
        """The weights of a vector of elements, in float32."""
        f, k, first = self.f, self.k, step.gates.start
        lanes, kind = k.lanes, k.ins[1].dtype
        if k.packed[1]:
            base, row, apart, mask = self.packed_weights(step, tile, kind), len(step.gates) * lanes, lanes, None
        else:
            strides = k.ins[1].strides
            start = f.add(f.mul(step.direction, strides[0]), first * k.hidden, f.mul(tile.number, lanes))
            base, row, apart, mask = f.address(self.weights, start, kind), strides[1], k.hidden, tile.mask
        return lambda c, g: f.load(base, f.add(f.mul(c, row), (g - first) * apart), kind, lanes, mask)

    def packed_weights(self, step: TimeStep, tile: Tile, kind: np.dtype) -> ir.Value:
        """Where the packed weights of a vector of elements begin."""
        f, k = self.f, self.k
        first = f.mul(f.add(f.mul(step.direction, k.op.gates), step.gates.start), k.tiles)
        start = f.mul(f.add(first, f.mul(tile.number, len(step.gates))), k.weight_rows * k.lanes)
        return f.address(self.weights, start, kind)

    def tile(self, step: TimeStep, tiles: Sequence[Tile], rows: Sequence[Index]) -> None:
        """One register tile: all sums, then the states of each sequence."""
        f, k = self.f, self.k
        begun = [[self.begun(step.direction, tile, g) for g in step.gates] for tile in tiles]
        sums = [[[f.variable(value) for value in of_gates] for of_gates in begun] for _ in rows]
        weights = [self.weight(step, tile) for tile in tiles]
        pointer, apart = step.state
        states = [f.address(pointer, f.mul(b, apart), F32) for b in rows]
        with f.loop(0, k.hidden) as c:
            factors = [[weight(c, g) for g in step.gates] for weight in weights]
            for state, of_tiles in zip(states, sums, strict=True):
                element = f.splat(f.load(state, c, F32), k.lanes)
                for variables, of_gates in zip(of_tiles, factors, strict=True):
                    for variable, factor in zip(variables, of_gates, strict=True):
                        f.change(variable, f.fma(element, factor, f.read(variable)))
        for b, of_tiles in zip(rows, sums, strict=True):
            for tile, variables in zip(tiles, of_tiles, strict=True):
                self.finish(step, tile, b, [f.read(variable) for variable in variables])

    def begun(self, d: Index, tile: Tile, gate: int) -> ir.Value:
        """What a sum begins with: the bias of a gate, or zero where there is none or a scale comes first."""
        if self.bias is None or self.scale is not None:
            return zeros(vector(FLOAT, self.k.lanes))
        return self.of_gate(self.bias, 2, d, tile, gate)

    def of_gate(self, pointer: ir.Value, i: int, d: Index, tile: Tile, gate: int) -> ir.Value:
        """A vector of operand `i`, which has an element for each gate and element of a state."""
        f, k = self.f, self.k
        if k.packed[i]:
            start = f.mul(f.add(f.mul(f.add(f.mul(d, k.tiles), tile.number), k.op.gates), gate), k.lanes)
            return f.load(pointer, start, F32, k.lanes)
        start = f.add(f.mul(d, k.ins[i].strides[0]), gate * k.hidden, f.mul(tile.number, k.lanes))
        return f.load(pointer, start, F32, k.lanes, tile.mask)

    def scaled(self, step: TimeStep, tile: Tile, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums of each gate times its scale, plus its bias."""
        if self.scale is None:
            return list(sums)
        f, bias, scale, d = self.f, self.bias, self.scale, step.direction
        factors = [self.of_gate(scale, 2 + self.k.op.bias, d, tile, g) for g in step.gates]
        if bias is None:
            return [f.b.fmul(total, factor) for total, factor in zip(sums, factors, strict=True)]
        added = [self.of_gate(bias, 2, d, tile, g) for g in step.gates]
        return [f.fma(*each) for each in zip(sums, factors, added, strict=True)]

    def finish(self, step: TimeStep, tile: Tile, b: Index, fed_back: Sequence[ir.Value]) -> None:
        """Computes the states of a sequence from its sums, and stores them; from those of gates before the last, what
        is kept for that."""
        f, k = self.f, self.k
        column = f.mul(tile.number, k.lanes)
        found = self.scaled(step, tile, fed_back)
        if step.gates.stop < k.op.gates:
            missing = zeros(found[0].type)
            values = self.read(step, tile, b, [*found, missing])
            assert k.op.reset is not None
            for gate, value in enumerate([*found, emit_expr(f, k.op.reset, values, k.lanes)]):
                f.store(value, self.kept(b, gate), column, F32, k.lanes)
            return
        earlier = [f.load(self.kept(b, gate), column, F32, k.lanes) for gate in range(step.gates.start)]
        values = self.read(step, tile, b, earlier + found)
        for s, expr in enumerate(k.op.steps):
            values.append(emit_expr(f, expr, values, k.lanes))
            at = f.add(f.dot([s, step.time, step.direction, b], k.out.strides[:4]), column)
            f.store(values[-1], self.out, at, F32, k.lanes, tile.mask)

    def read(self, step: TimeStep, tile: Tile, b: Index, fed_back: Sequence[ir.Value]) -> list[ir.Value]:
        """What expressions read before the step, with products of the state."""
        f, k = self.f, self.k
        gates, column = k.op.gates, f.mul(tile.number, k.lanes)
        start = f.add(f.dot([step.time, b], k.ins[0].strides[:2]), f.mul(step.direction, gates * k.hidden), column)
        values = [f.load(self.products, f.add(start, g * k.hidden), F32, k.lanes, tile.mask) for g in range(gates)]
        values += fed_back
        for pointer, apart in step.before:
            values.append(f.load(pointer, f.add(f.mul(b, apart), column), F32, k.lanes, tile.mask))
        if self.mask is not None:
            live = f.load(self.mask, f.dot([step.time, b], k.ins[k.op.main - 1].strides), F32)
            values.append(f.splat(live, k.lanes))
        return values
