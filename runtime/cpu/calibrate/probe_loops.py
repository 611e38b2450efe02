"""Two compiled loops that load the machine fully: multiply-adds in registers, and streams through memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I64, PTR, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.runtime.cpu.compile.load import load_module

CHAINS = 12  # independent multiply-adds: enough for two units of latency 4 to 6
UNROLLED = 4  # vectors of each stream per turn
_F32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Probes:
    """`multiply_add(turns, buffer)` does `flops_per_turn` a turn, on a float32 buffer of `vectors` vectors.

    `stream(buffer, third, sweeps)` adds the first `third` float32 elements of the buffer and the second into the third,
    `sweeps` times; `third` is a multiple of `chunk`.
    """

    multiply_add: Callable[[int, int], None]
    stream: Callable[[int, int, int], None]
    flops_per_turn: int
    vectors: int
    chunk: int


@cache
def probes(isa: Isa) -> Probes:
    """The compiled loops, kept on disk."""
    library = load_module(_module(isa.lanes), isa)
    return Probes(
        library.function("multiply_add", ctypes.c_int64, ctypes.c_void_p),
        library.function("stream", ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
        flops_per_turn=CHAINS * isa.lanes * 2,
        vectors=CHAINS + 2,
        chunk=UNROLLED * isa.lanes,
    )


def _module(lanes: int) -> ir.Module:
    module = ir.Module("probes")
    _multiply_add(FunctionEmitter(module, "multiply_add", (I64, PTR)), lanes)
    _stream(FunctionEmitter(module, "stream", (PTR, I64, I64)), lanes)
    return module


def _multiply_add(f: FunctionEmitter, lanes: int) -> None:
    """Every turn sums[k] = sums[k] · x + y for each chain. The buffer holds x, y and the sums: were they known to be
    equal, LLVM would keep one."""
    turns, buffer = f.fn.args
    kind = vector(FLOAT, lanes)
    x, y, *first = (f.load(buffer, k * lanes, _F32, lanes) for k in range(2 + CHAINS))
    sums = [f.local(kind, value) for value in first]
    with f.loop(0, turns):
        for total in sums:
            f.set(total, f.fma(f.get(total, kind), x, y))
    for k, total in enumerate(sums):
        f.store(f.get(total, kind), buffer, (2 + k) * lanes, _F32, lanes)
    f.finish()


def _stream(f: FunctionEmitter, lanes: int) -> None:
    buffer, third, sweeps = f.fn.args
    with f.loop(0, sweeps), f.loop(0, third, UNROLLED * lanes) as i:
        for k in range(UNROLLED):
            at = f.add(i, k * lanes)
            total = f.b.fadd(f.load(buffer, at, _F32, lanes), f.load(buffer, f.add(at, third), _F32, lanes))
            f.store(total, buffer, f.add(at, third, third), _F32, lanes)
    f.finish()
