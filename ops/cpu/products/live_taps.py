"""Where output pixels read, at run time: loops over the taps that fall on the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import I64, Index
from brickrt.ops.cpu.products.row_tiles import RowWindow


def first_input(f: FunctionEmitter, window: RowWindow, x: Index) -> Index:
    """Input index that relative index 0 of a row of tiles stands for (`RowWindow.base` at run time)."""
    if window.transposed:
        return f.div(f.add(x, window.pad), window.stride)
    return f.sub(f.mul(x, window.stride), window.pad)


@contextmanager
def live_taps(f: FunctionEmitter, window: RowWindow, extent_out: int, y: Index) -> Iterator[tuple[Index, Index]]:
    """Loop over the taps of an outer dimension that fall on the tensor: yields (tap, input index)."""
    k, s, d, pad = window.kernel, window.stride, window.dilation, window.pad
    if window.transposed:
        with f.loop(0, k) as tap:
            spread = f.sub(f.add(y, pad), f.mul(tap, d))
            index = f.div(spread, s)
            with f.when(_inside(f, index, window.extent, f.rem(spread, s))):
                yield tap, index
        return
    start = f.sub(f.mul(y, s), pad)
    if pad == 0 and (extent_out - 1) * s + (k - 1) * d < window.extent:
        lo, hi = 0, k
    else:
        lo = f.maximum(0, f.div(f.sub(d - 1, start), d))
        hi = f.minimum(k, f.add(f.div(f.sub(window.extent - 1, start), d), 1))
    with f.loop(lo, hi) as tap:
        yield tap, f.add(start, f.mul(tap, d))


def _inside(f: FunctionEmitter, index: Index, extent: int, rest: Index) -> ir.Value:
    """0 ≤ index < extent and rest == 0."""
    ok = f.b.icmp_unsigned("<", f.value(index), I64(extent))
    return f.b.and_(ok, f.b.icmp_signed("==", f.value(rest), I64(0)))
