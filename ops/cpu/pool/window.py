"""The part of a pooling window that lies in the tensor, while a kernel is emitted."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index
from brickrt.ops.operators.pool import Pool


@dataclass(frozen=True)
class Taps:
    """Along one axis: taps [lo, hi) of a window read start + tap·dilation; `count` is what they add to a divisor."""

    start: Index
    lo: Index
    hi: Index
    count: Index

    @property
    def fixed(self) -> range | None:
        """The taps, where they are known when the kernel is compiled."""
        return range(self.lo, self.hi) if isinstance(self.lo, int) and isinstance(self.hi, int) else None


@dataclass(frozen=True)
class AxisWindow:
    """How a window moves along one spatial axis of `extent` inputs."""

    kernel: int
    stride: int
    dilation: int
    pad: int
    extent: int
    counted: int | None
    """Where the padding ends that an average counts; None: it counts inputs only."""

    def taps(self, f: FunctionEmitter, o: Index) -> Taps:
        """At output `o`, wherever it is."""
        start = f.sub(f.mul(o, self.stride), self.pad)
        lo = f.maximum(self._reach(f, start, 0), 0)
        hi = self._below(f, start, self.extent)
        counted = f.sub(hi, lo) if self.counted is None else self._below(f, start, self.counted)
        return Taps(start, lo, hi, counted)

    def inner_taps(self, f: FunctionEmitter, o: Index) -> Taps:
        """At output `o` of `inner`."""
        return Taps(f.sub(f.mul(o, self.stride), self.pad), 0, self.kernel, self.kernel)

    def _below(self, f: FunctionEmitter, start: Index, end: int) -> Index:
        """Taps that read below `end`."""
        return f.maximum(f.minimum(self._reach(f, start, end), self.kernel), 0)

    def _reach(self, f: FunctionEmitter, start: Index, at: int) -> Index:
        """The first tap at or after input `at`."""
        return f.div(f.add(f.sub(at, start), self.dilation - 1), self.dilation)

    @property
    def inner(self) -> tuple[int, int]:
        """The outputs whose whole window lies in the tensor."""
        span = (self.kernel - 1) * self.dilation + 1
        first = -(-self.pad // self.stride)
        return first, max((self.extent + self.pad - span) // self.stride + 1, first)

    def is_inner(self, f: FunctionEmitter, o: Index) -> ir.Value:
        """Whether the whole window of output `o` lies in the tensor."""
        first, last = self.inner
        o = f.value(o)
        b = f.b
        return b.and_(b.icmp_signed(">=", o, f.value(first)), b.icmp_signed("<", o, f.value(last)))


def axis_windows(op: Pool, extents: tuple[int, ...]) -> list[AxisWindow]:
    """The windows of a pooling along its spatial axes."""
    ends = [e + a if op.count_include_pad else None for e, a in zip(extents, op.pads_end, strict=True)]
    axes = zip(op.kernel, op.strides, op.dilations, op.pads, extents, ends, strict=True)
    return [AxisWindow(*axis) for axis in axes]
