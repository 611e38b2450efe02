"""Elements put at positions along an axis that are data (ONNX's ScatterElements), for the host to call."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.item_loop import ItemLoop
from brickrt.ops.cpu.emit.llvm_types import I1, I64, Index
from brickrt.ops.cpu.host_loops import SCATTER_BLOCK, SCATTER_WORDS

LANES = 8
INT64 = np.dtype(np.int64)


def emit_scatter(module: ir.Module, name: str, size: int) -> None:
    """An item is one block of SCATTER_BLOCK elements behind the axis, of one of the parts before it, and takes all
    `rows` of the indices, the last at a position counts. `out` is [parts, `extent`, `inner`] of elements of so many
    bytes, `indices` int64 and `updates` are [parts, `rows`, `inner`]; `blocks` are those of `inner`. An index that is
    out of range is noted where `wrong` points to, and nothing is written for it."""
    f = ItemLoop(module, name, SCATTER_WORDS)
    inner, rows, blocks, extent = f.word("inner"), f.word("rows"), f.word("blocks"), f.word("extent")
    place = _Places(f, np.dtype(f"i{size}"), extent, inner)
    with f.items() as item:
        part = f.b.sdiv(item, blocks)
        first = f.mul(f.sub(item, f.mul(part, blocks)), SCATTER_BLOCK)
        last = f.minimum(f.add(first, SCATTER_BLOCK), inner)
        base = f.mul(f.mul(part, extent), inner)
        whole = f.sub(last, f.rem(f.sub(last, first), LANES))
        with f.loop(0, rows) as row:
            source = f.mul(f.add(f.mul(part, rows), row), inner)
            with f.loop(first, whole, LANES) as at:
                place.many(f.add(source, at), f.add(base, at))
            with f.loop(whole, last) as at:
                place.one(f.add(source, at), f.add(base, at))
    f.finish()


class _Places:
    """Puts updates at where their indices say."""

    def __init__(self, f: ItemLoop, dtype: np.dtype, extent: ir.Value, inner: ir.Value) -> None:
        self.f, self.dtype, self.extent, self.inner = f, dtype, extent, inner
        self.out, self.indices, self.updates = f.pointed("out"), f.pointed("indices"), f.pointed("updates")

    def many(self, source: Index, base: Index) -> None:
        """LANES neighbours: all at once where their indices are equal, as they are where whole rows are put."""
        f = self.f
        found = f.load(self.indices, source, INT64, LANES)
        first = f.load(self.indices, source, INT64)
        same = f.b.bitcast(f.b.icmp_signed("==", found, f.splat(first, LANES)), ir.IntType(LANES))
        equal = f.b.icmp_signed("==", same, ir.IntType(LANES)(-1))
        with f.when(equal):
            self._put(first, source, base, LANES)
        with f.when(f.b.xor(equal, I1(1))), f.loop(0, LANES) as k:
            self.one(f.add(source, k), f.add(base, k))

    def one(self, source: Index, base: Index) -> None:
        """One element."""
        self._put(self.f.load(self.indices, source, INT64), source, base, 1)

    def _put(self, index: ir.Value, source: Index, base: Index, lanes: int) -> None:
        f = self.f
        negative = f.b.icmp_signed("<", index, I64(0))
        at = f.b.add(index, f.b.select(negative, self.extent, I64(0)))
        inside = f.b.icmp_unsigned("<", at, self.extent)
        with f.when(inside):
            value = f.load(self.updates, source, self.dtype, lanes)
            f.store(value, self.out, f.add(base, f.mul(at, self.inner)), self.dtype, lanes)
        with f.when(f.b.xor(inside, I1(1))):
            f.store(index, f.pointed("wrong"), 0, INT64)
            f.store(I64(1), f.pointed("wrong"), 1, INT64)
