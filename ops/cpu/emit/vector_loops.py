"""A loop over a range in vectors: several at a time, then one by one, then what is left of a vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import Index


def vector_loops(
    f: FunctionEmitter,
    lo: Index,
    hi: Index,
    lanes: int,
    unroll: int,
    body: Callable[[Iterable[Index]], None],
    tail: Callable[[ir.Value], None],
) -> None:
    """Calls `body` with the first indices of `unroll` vectors, and again with that of one, then `tail` with the number
    of elements left, which are those before `hi`."""
    wide = unroll * lanes
    with f.loop(lo, f.sub(hi, wide - 1), wide) as i:
        body(f.add(i, k * lanes) for k in range(unroll))
    done = f.sub(hi, f.rem(f.sub(hi, lo), wide))
    with f.loop(done, f.sub(hi, lanes - 1), lanes) as i:
        body([i])
    left = f.value(f.rem(f.sub(hi, lo), lanes))
    with f.when(f.b.icmp_signed(">", left, f.value(0))):
        tail(left)
