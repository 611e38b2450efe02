"""The inner part of a reduction: accumulators swept over the reduced spans, for one or several outputs at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from llvmlite import ir

from brickrt.ops.cpu.arithmetic.combine import Combine
from brickrt.ops.cpu.arithmetic.expressions import effort, emit_expr
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.cpu.emit.sizes import Size, greatest, is_less, least
from brickrt.ops.cpu.reductions.reduce_plan import MergedDims, ReducePlan
from brickrt.ops.expr import Expr, used_operands
from brickrt.ops.types import is_floating

# Independent accumulators per output, where one output is swept at a time.
PARTIALS = 4
# Operations of an expression that need no help to overlap.
BUSY_OPERATIONS = 12
# Longest chain of roundings in a float sum: beyond, sums of sums.
CHAIN = 64

# Vectors of outputs that are swept together where lanes are outputs of a plain tensor.
COLUMNS, BUSY_COLUMNS = 8, 2

Place = list[Index]
Slots = list[list[ir.Value]]
More = Callable[[int, Place, ir.Value | None], list[ir.Value | None]]


@dataclass(frozen=True)
class ReductionSweep:
    """Everything that stays the same over one kernel.

    `pointers` are those of the inputs. `channels` is the range that the box needs where it may cut a block of lanes.
    `more` gives the operands of the expression that follow the inputs: of which place of a run, where, for which mask.
    """

    f: FunctionEmitter
    plan: ReducePlan
    combine: Combine
    spans: list[MergedDims]
    lanes: int
    pointers: Sequence[ir.Value]
    channels: tuple[Index, Index] | None = None
    more: More | None = None

    def run(self, places: Sequence[Place], mask: ir.Value | None = None) -> list[ir.Value]:
        """Per place (an index of the domain, 0 where reduced) a vector: its output, or partial results of it per lane.

        Where lanes are kept, `mask` tells which of them exist.
        """
        slots = self._fresh(len(places))
        if all(span.extent for span in self.spans):
            self._level(0, [list(p) for p in places], slots, mask)
        kind = self.combine.identity(self.lanes).type
        return [self.combine.all(self.f, [self.f.get(s, kind) for s in row]) for row in slots]

    @property
    def busy(self) -> bool:
        """Whether the expression alone keeps the machine busy, so that more of it at a time gains nothing."""
        return self.plan.op.pre is not None and effort(self.plan.op.pre) >= BUSY_OPERATIONS

    @cached_property
    def partials(self) -> int:
        """Accumulators per place; one where many places are swept at a time."""
        if not self.spans or self.busy:
            return 1
        innermost = self.spans[-1]
        columns = not (self.plan.blocked or self.plan.lanes_reduced)
        if columns or (self.plan.blocked and innermost.dim == self.plan.lane_dim):
            return 1
        steps = innermost.extent // self._step(innermost)
        if isinstance(steps, Size):  # accumulators that have nothing to add change nothing, and all sizes share code
            return PARTIALS if steps > 0 else 1
        return max(1, min(PARTIALS, steps))

    def _fresh(self, places: int) -> Slots:
        start = self.combine.identity(self.lanes)
        return [[self.f.local(start.type, start) for _ in range(self.partials)] for _ in range(places)]

    def _step(self, span: MergedDims) -> int:
        return self.lanes if span.dim == self.plan.lane_dim else 1

    @property
    def _rounds(self) -> bool:
        return self.combine.how == "sum" and is_floating(self.combine.dtype)

    def _level(self, level: int, places: list[Place], slots: Slots, mask: ir.Value | None) -> None:
        """Reduced spans from number `level` on."""
        if level == len(self.spans):
            self._step_once(places, slots, 0, mask)
            return
        span, step, wide = self.spans[level], self._step(self.spans[level]), self._stride(level)
        main, whole = span.extent - span.extent % wide, span.extent - span.extent % step
        if isinstance(main, Size) or main:
            self._walk(level, places, slots, mask, 0, main, main // wide)
        # Only the innermost span has steps left that do not fill all partial accumulators.
        for k in range(wide // step - 1):
            with self._where(main + k * step, whole) as there:
                if there:
                    self._step_once(all_moved_to(places, span.dim, main + k * step), slots, k, mask)
        with self._where(whole, span.extent) as there:
            if there:
                self._level(level + 1, all_moved_to(places, span.dim, whole), slots, self._tail(span))

    @contextmanager
    def _where(self, x: int | Size, y: int | Size) -> Iterator[bool]:
        """Whether what follows is to be emitted: it runs where x < y."""
        if isinstance(is_less(x, y), Size):
            with self.f.when(self.f.b.icmp_signed("<", self.f.value(x), self.f.value(y))):
                yield True
        else:
            yield x < y

    def _walk(
        self,
        level: int,
        places: list[Place],
        slots: Slots,
        mask: ir.Value | None,
        lo: Index,
        hi: Index,
        count: int | Size,
    ) -> None:
        """At most `count` iterations of a span's loop; long sums in groups with accumulators of their own."""
        f, wide, group = self.f, self._stride(level), self._group(level, count)
        if group >= count:
            with f.loop(lo, hi, wide) as i:
                self._body(level, places, slots, mask, i)
            return
        with f.loop(lo, hi, wide * group) as start:
            own = self._fresh(len(places))
            if group == 1:
                self._body(level, places, own, mask, start)
            else:
                end = f.minimum(f.add(start, wide * group), hi)
                self._walk(level, places, own, mask, start, end, group)
            self._merge(slots, own)

    def _body(self, level: int, places: list[Place], slots: Slots, mask: ir.Value | None, i: Index) -> None:
        span = self.spans[level]
        if level < len(self.spans) - 1:
            self._level(level + 1, all_moved_to(places, span.dim, i), slots, mask)
            return
        for k in range(self.partials):
            at = self.f.add(i, k * self._step(span))
            self._step_once(all_moved_to(places, span.dim, at), slots, k, mask)

    def _stride(self, level: int) -> int:
        """Elements of a span per iteration of its loop."""
        return self._step(self.spans[level]) * (self.partials if level == len(self.spans) - 1 else 1)

    def _chain(self, level: int) -> int | Size:
        """Roundings one after another in an accumulator that `_level` is given."""
        if level >= len(self.spans):
            return 1
        count = self._count(level)
        group = self._group(level, count)
        return count * self._chain(level + 1) if group >= count else -(-count // group)

    def _count(self, level: int) -> int | Size:
        """Iterations of a span's loop, of which a short one has one, whatever code it shares."""
        steps = self.spans[level].extent // self._step(self.spans[level])
        if level < len(self.spans) - 1 or self.partials == 1:
            return steps
        return steps // greatest(1, least(PARTIALS, steps))

    def _group(self, level: int, count: int | Size) -> int | Size:
        """Iterations per accumulator, such that no chain of roundings is longer than CHAIN."""
        inner = self._chain(level + 1)
        if not self._rounds or count * inner <= CHAIN:
            return count
        group = greatest(CHAIN // inner, 1)
        while -(-count // group) > CHAIN:
            group *= CHAIN
        return group

    def _step_once(self, places: list[Place], slots: Slots, partial: int, mask: ir.Value | None) -> None:
        for number, (place, row) in enumerate(zip(places, slots, strict=True)):
            value = self._value(number, place, mask)
            before = self.f.get(row[partial], value.type)
            self.f.set(row[partial], self.combine.apply(self.f, before, value))

    def _merge(self, slots: Slots, own: Slots) -> None:
        kind = self.combine.identity(self.lanes).type
        for row, fresh in zip(slots, own, strict=True):
            for slot, part in zip(row, fresh, strict=True):
                total = self.combine.apply(self.f, self.f.get(slot, kind), self.f.get(part, kind))
                self.f.set(slot, total)

    def _tail(self, span: MergedDims) -> ir.Value:
        return self.f.tail_mask(span.extent % self.lanes, self.lanes)

    def _value(self, number: int, place: Place, mask: ir.Value | None) -> ir.Value:
        """What is combined at a place; the identity where lanes are reduced and the mask is off."""
        f, pre = self.f, self.plan.op.pre
        more = self.more(number, place, mask) if self.more else []
        value = self._load(0, place, mask) if pre is None else self.evaluate(pre, place, mask, more)
        if mask is None or not self.plan.lanes_reduced:
            return value
        return f.b.select(mask, value, self.combine.identity(self.lanes))

    def evaluate(
        self, expr: Expr, place: Place, mask: ir.Value | None, more: Sequence[ir.Value | None] = ()
    ) -> ir.Value:
        """The vector that an expression over the inputs, and `more` operands, has at a place."""
        inputs = len(self.plan.ins)
        loaded = {k: self._load(k, place, mask) for k in used_operands(expr) if k < inputs}
        return emit_expr(self.f, expr, [*(loaded.get(k) for k in range(inputs)), *more], self.lanes)

    def _load(self, k: int, place: Place, mask: ir.Value | None) -> ir.Value:
        how = self.plan.accesses[k]
        channel = place[1] if self.plan.blocked else 0
        return how.load(self.f, self.pointers[k], how.offset(self.f, place), self.lanes, mask, channel, self.channels)


def moved_to(place: Place, dim: int, i: Index) -> Place:
    """The place with index `i` along `dim`."""
    return [*place[:dim], i, *place[dim + 1 :]]


def all_moved_to(places: Sequence[Place], dim: int, i: Index) -> list[Place]:
    """Each place with index `i` along `dim`."""
    return [moved_to(place, dim, i) for place in places]
