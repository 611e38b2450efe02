"""Between which pixels of an axis points lie, in vectors of points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I32, fill, vector
from brickrt.ops.cpu.host_loops import LANES

SHARPNESS = -0.75  # of cubic interpolation
FARTHEST_PIXEL = float(1 << 22)
"""Pixels beyond which a float32 does not tell places between pixels."""
FLOATS = vector(FLOAT, LANES)
STEPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""The taps of a mode, counted from the pixel before the point."""

Tap = tuple[ir.Value, ir.Value]
"""The pixel as <LANES x i32>, always one of the axis, and its weight."""


@dataclass(frozen=True)
class PointTaps:
    """Emits the taps of one axis for points that are `at` the coordinate that a grid has, from -1 to 1, or at the pixel
    that it has where `align` is None. `extent` is the number of pixels, a scalar float32."""

    f: FunctionEmitter
    mode: str
    padding: str
    align: bool | None
    extent: ir.Value

    def taps(self, coordinate: ir.Value) -> list[Tap]:
        """The taps of LANES points. A coordinate that is no number is that of pixel 0."""
        f, cubic = self.f, self.mode == "cubic"
        at = self._known(self._pixel(coordinate))
        if self.mode == "nearest":
            at = f.math("rint", at)
        if self.padding == "reflection":
            at = self._between(at, fill(FLOATS, -FARTHEST_PIXEL), fill(FLOATS, FARTHEST_PIXEL))
            at = at if cubic else self._reflected(at)
        else:
            at = at if cubic or self.padding != "border" else self._between(at, self._all(0.0), self._last())
            at = self._between(at, self._all(-3.0), f.b.fadd(self._extent(), self._all(2.0)))
        first = f.math("floor", at)
        part = f.b.fsub(at, first)
        return [self._tap(first, part, step) for step in STEPS[self.mode]]

    def _pixel(self, coordinate: ir.Value) -> ir.Value:
        f = self.f
        if self.align is None:
            return coordinate
        moved = f.b.fadd(coordinate, self._all(1.0))
        if self.align:
            return f.b.fmul(f.b.fmul(moved, self._all(0.5)), self._last())
        return f.b.fmul(f.b.fsub(f.b.fmul(moved, self._extent()), self._all(1.0)), self._all(0.5))

    def _tap(self, first: ir.Value, part: ir.Value, step: int) -> Tap:
        f = self.f
        weight, place = self._weight(part, step), f.b.fadd(first, self._all(float(step)))
        if self.padding == "reflection":
            place = self._reflected(place)
        elif self.padding == "zeros":
            above = f.b.fcmp_ordered(">=", place, self._all(0.0))
            inside = f.b.and_(above, f.b.fcmp_ordered("<=", place, self._last()))
            weight = f.b.select(inside, weight, self._all(0.0))
        place = self._between(place, self._all(0.0), self._last())
        return f.b.fptosi(place, vector(I32, LANES)), weight

    def _weight(self, part: ir.Value, step: int) -> ir.Value:
        """That of the pixel so many steps from the one before the point, which lies `part` behind that."""
        f = self.f
        if self.mode == "nearest":
            return self._all(1.0)
        if self.mode == "linear":
            return part if step else f.b.fsub(self._all(1.0), part)
        d = f.math("fabs", f.b.fsub(part, self._all(float(step))))
        a = SHARPNESS
        if step in (0, 1):
            return self._polynomial(d, (a + 2, -(a + 3), 0.0, 1.0))
        return self._polynomial(d, (a, -5 * a, 8 * a, -4 * a))

    def _polynomial(self, x: ir.Value, factors: Sequence[float]) -> ir.Value:
        total = self._all(factors[0])
        for factor in factors[1:]:
            total = self.f.fma(total, x, self._all(factor))
        return total

    def _reflected(self, at: ir.Value) -> ir.Value:
        """Places folded back and forth between the edges, those of the first and last pixel or half a pixel beyond."""
        f, margin = self.f, 0.0 if self.align else 0.5
        low, high = self._all(-margin), f.b.fadd(self._last(), self._all(margin))
        span = f.b.fsub(high, low)
        period = f.b.fadd(span, span)
        from_low = f.b.fsub(at, low)
        turns = f.math("floor", f.b.fdiv(from_low, period))
        inside = f.fma(f.b.fneg(turns), period, from_low)
        back = f.b.fsub(period, inside)
        folded = f.b.fadd(low, f.b.select(f.b.fcmp_ordered("<", inside, back), inside, back))
        outside = f.b.fcmp_unordered("!=", at, self._between(at, low, high))
        return self._known(self._between(f.b.select(outside, folded, at), low, high))

    def _between(self, at: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
        """Places cut to a range; what is no number is `low`."""
        f = self.f
        at = f.b.select(f.b.fcmp_ordered(">", at, low), at, low)
        return f.b.select(f.b.fcmp_ordered("<", at, high), at, high)

    def _known(self, at: ir.Value) -> ir.Value:
        """0 where there is no number."""
        return self.f.b.select(self.f.b.fcmp_ordered("==", at, at), at, self._all(0.0))

    def _all(self, value: float) -> ir.Constant:
        return fill(FLOATS, value)

    def _extent(self) -> ir.Value:
        return self.f.splat(self.extent, LANES)

    def _last(self) -> ir.Value:
        return self.f.b.fsub(self._extent(), self._all(1.0))
