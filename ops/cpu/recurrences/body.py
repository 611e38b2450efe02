"""The code of a recurrent layer.

In each step a register tile has the sums of all gates for one or two vectors of a state's elements and some sequences.
The last state before the step is read element by element, where it was written: from the output, or from where states
begin. Few sequences have two vectors, since multiply-adds to one sum wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.expressions import emit_expr
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I64, Index, vector, zeros
from brickrt.ops.cpu.recurrences.scheme import RecurrenceScheme

F32 = np.dtype(np.float32)
Weight = Callable[[Index, int], ir.Value]  # (element of the state, gate) → a vector of what it is multiplied with


@dataclass(frozen=True)
class TimeStep:
    """A step of time in a direction: `before` has, for each state, its address for the first sequence and how far it
    is to the next one, as it was before the step."""

    direction: Index
    time: Index
    before: Sequence[tuple[ir.Value, ir.Value]]


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

    def emit(self) -> None:
        """Directions, then time, then vectors of elements, two at a time."""
        f, k = self.f, self.k
        whole, rest = divmod(k.hidden, k.lanes)
        with f.loop(*f.box(2)) as d, f.loop(0, k.out.shape[1]) as i:
            step = self.step(d, i)
            self.before_step(step)
            with f.loop(0, whole // 2) as pair:
                self.sequences(step, [Tile(f.add(f.mul(pair, 2), half)) for half in range(2)])
            tiles = [Tile(whole - 1)] if whole % 2 else []
            tiles += [Tile(whole, f.tail_mask(rest, k.lanes))] if rest else []
            if tiles:
                self.sequences(step, tiles)

    def before_step(self, step: TimeStep) -> None:
        """What is done once in a step, before its tiles."""

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
        return TimeStep(d, time, [self.state_before(s, d, former, first) for s in range(k.op.states)])

    def state_before(self, s: int, d: Index, former: Index, first: ir.Value) -> tuple[ir.Value, ir.Value]:
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
        start, hi = f.box(3)
        for rows in k.row_tiles:
            end = f.add(start, f.mul(f.div(f.sub(hi, start), rows), rows)) if rows > 1 else hi
            with f.loop(start, end, rows) as b:
                several = len(tiles) * rows * k.sums_each <= k.sums
                for part in [tiles] if several else [[tile] for tile in tiles]:
                    self.tile(step, part, [f.add(b, t) for t in range(rows)])
            start = end

    def weight(self, d: Index, tile: Tile) -> Weight:
        """The weights of a vector of elements, in float32."""
        f, k = self.f, self.k
        gates, lanes, kind = k.op.gates, k.lanes, k.ins[1].dtype
        if k.packed[1]:
            start = f.mul(f.add(f.mul(d, k.tiles), tile.number), k.hidden * gates * lanes)
            base, row, apart, mask = f.address(self.weights, start, kind), gates * lanes, lanes, None
        else:
            strides = k.ins[1].strides
            base = f.address(self.weights, f.add(f.mul(d, strides[0]), f.mul(tile.number, lanes)), kind)
            row, apart, mask = strides[1], k.hidden, tile.mask
        return lambda c, g: f.load(base, f.add(f.mul(c, row), g * apart), kind, lanes, mask)

    def tile(self, step: TimeStep, tiles: Sequence[Tile], rows: Sequence[Index]) -> None:
        """One register tile: all sums, then the states of each sequence."""
        f, k = self.f, self.k
        begun = [[self.begun(step.direction, tile, g) for g in range(k.op.gates)] for tile in tiles]
        sums = [[[f.variable(value) for value in of_gates] for of_gates in begun] for _ in rows]
        weights = [self.weight(step.direction, tile) for tile in tiles]
        pointer, apart = step.before[-1]
        states = [f.address(pointer, f.mul(b, apart), F32) for b in rows]
        with f.loop(0, k.hidden) as c:
            factors = [[weight(c, g) for g in range(k.op.gates)] for weight in weights]
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

    def scaled(self, d: Index, tile: Tile, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums of each gate times its scale, plus its bias."""
        if self.scale is None:
            return list(sums)
        f, bias, scale = self.f, self.bias, self.scale
        factors = [self.of_gate(scale, 2 + self.k.op.bias, d, tile, g) for g in range(len(sums))]
        if bias is None:
            return [f.b.fmul(total, factor) for total, factor in zip(sums, factors, strict=True)]
        added = [self.of_gate(bias, 2, d, tile, g) for g in range(len(sums))]
        return [f.fma(*each) for each in zip(sums, factors, added, strict=True)]

    def finish(self, step: TimeStep, tile: Tile, b: Index, fed_back: Sequence[ir.Value]) -> None:
        """Computes the states of a sequence from its sums, and stores them."""
        f, k = self.f, self.k
        gates, column = k.op.gates, f.mul(tile.number, k.lanes)
        start = f.add(f.dot([step.time, b], k.ins[0].strides[:2]), f.mul(step.direction, gates * k.hidden), column)
        values = [f.load(self.products, f.add(start, g * k.hidden), F32, k.lanes, tile.mask) for g in range(gates)]
        values += self.scaled(step.direction, tile, fed_back)
        for pointer, apart in step.before:
            values.append(f.load(pointer, f.add(f.mul(b, apart), column), F32, k.lanes, tile.mask))
        if self.mask is not None:
            live = f.load(self.mask, f.dot([step.time, b], k.ins[k.op.main - 1].strides), F32)
            values.append(f.splat(live, k.lanes))
        for s, expr in enumerate(k.op.steps):
            values.append(emit_expr(f, expr, values, k.lanes))
            at = f.add(f.dot([s, step.time, step.direction, b], k.out.strides[:4]), column)
            f.store(values[-1], self.out, at, F32, k.lanes, tile.mask)
