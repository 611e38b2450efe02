"""Compiled loops whose speed tells that of the machine: multiply-adds in registers, the same with paired elements,
streams through memory, and a chain of additions that tells the clock."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.llvm_types import FLOAT, I64, PTR, vector
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.paired.pairing import PARTS, PERIOD, elements
from brickrt.ops.cpu.paired.sums import plus
from brickrt.runtime.cpu.compile.load import load_module

CHAINS, FEW_CHAINS = 16, 12  # independent multiply-adds: enough for four units of latency 4, or two of latency 6
LINKS = 32  # additions of a round, each of which needs the one before: one cycle each on any processor
UNROLLED = 4  # vectors of each stream per round
PERIODS = 4  # of elements of K that paired products read in turn
_F32, _I64 = np.dtype(np.float32), np.dtype(np.int64)


@dataclass(frozen=True)
class Probes:
    """`multiply_add(rounds, buffer)` multiplies and adds `chains` vectors of `lanes` float32 elements a round, on a
    buffer of two vectors more.

    `pair(rounds, buffer)` does in a round what PERIOD rounds of `multiply_add` do, with paired elements of rows and
    columns (`ops/cpu/paired/`), on a buffer of `(PERIODS + 1) * PERIOD * (lanes + chains)` elements.

    `count(rounds, buffer)` takes LINKS cycles a round, on a buffer of three int64.

    `stream(buffer, third, sweeps)` adds the first `third` float32 elements of the buffer and the second into the third,
    `sweeps` times; `third` is a multiple of `chunk`.
    """

    multiply_add: Callable[[int, int], None]
    pair: Callable[[int, int], None]
    stream: Callable[[int, int, int], None]
    count: Callable[[int, int], None]
    chains: int
    lanes: int

    @property
    def chunk(self) -> int:
        """Elements of each stream that a round of its loop moves."""
        return UNROLLED * self.lanes

    def third(self, nbytes: int) -> int:
        """The elements of each stream for which all three take up to so many bytes."""
        return nbytes // 12 // self.chunk * self.chunk


@cache
def probes(isa: Isa) -> Probes:
    """The compiled loops, kept on disk."""
    chains = CHAINS if isa.registers > CHAINS + 2 else FEW_CHAINS
    library = load_module(f"probes {chains}", lambda: _module(isa.lanes, chains), isa)
    return Probes(
        library.function("multiply_add", ctypes.c_int64, ctypes.c_void_p),
        library.function("pair", ctypes.c_int64, ctypes.c_void_p),
        library.function("stream", ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
        library.function("count", ctypes.c_int64, ctypes.c_void_p),
        chains,
        isa.lanes,
    )


def _module(lanes: int, chains: int) -> ir.Module:
    module = ir.Module("probes")
    _multiply_add(FunctionEmitter(module, "multiply_add", (I64, PTR)), lanes, chains)
    _pair(FunctionEmitter(module, "pair", (I64, PTR)), lanes, chains)
    _stream(FunctionEmitter(module, "stream", (PTR, I64, I64)), lanes)
    _count(FunctionEmitter(module, "count", (I64, PTR)))
    return module


def _multiply_add(f: FunctionEmitter, lanes: int, chains: int) -> None:
    """Every round sums[k] = sums[k] · x + y for each chain. The buffer holds x, y and the sums: were they known to be
    equal, LLVM would keep one."""
    rounds, buffer = f.fn.args
    kind = vector(FLOAT, lanes)
    x, y, *first = (f.load(buffer, k * lanes, _F32, lanes) for k in range(2 + chains))
    sums = [f.local(kind, value) for value in first]
    with f.loop(0, rounds):
        for total in sums:
            f.set(total, f.fma(f.get(total, kind), x, y))
    for k, total in enumerate(sums):
        f.store(f.get(total, kind), buffer, (2 + k) * lanes, _F32, lanes)
    f.finish()


def _pair(f: FunctionEmitter, lanes: int, chains: int) -> None:
    """The buffer holds PERIODS periods of weights, of all rows one after another, and the sums. Every round reads
    another period, as the product of matrices does: LLVM must not keep what it has read."""
    rounds, buffer = f.fn.args
    panel, weights_end = PERIOD * lanes, PERIODS * PERIOD * lanes
    start = weights_end + chains * PERIODS * PERIOD
    sums = [f.variable(f.load(buffer, start + k * lanes, _F32, lanes)) for k in range(chains)]
    with f.loop(0, rounds) as n:
        period = f.rem(n, PERIODS)
        weights = f.address(buffer, f.mul(period, panel), _F32)
        rows = f.address(buffer, f.add(f.mul(period, PERIOD), weights_end), _F32)
        for part in PARTS:
            factors = {n: f.load(weights, n * lanes, _F32, lanes) for n in elements(part)}
            for k, total in enumerate(sums):
                for n in part:
                    f.change(total, plus(f, f.read(total), n, partial(_element, f, rows, k, lanes), factors))
    for k, total in enumerate(sums):
        f.store(f.read(total), buffer, start + k * lanes, _F32, lanes)
    f.finish()


def _element(f: FunctionEmitter, rows: ir.Value, k: int, lanes: int, n: int) -> ir.Value:
    """An element of row `k` in all lanes."""
    return f.splat(f.load(rows, k * PERIODS * PERIOD + n, _F32), lanes)


def _stream(f: FunctionEmitter, lanes: int) -> None:
    buffer, third, sweeps = f.fn.args
    with f.loop(0, sweeps), f.loop(0, third, UNROLLED * lanes) as i:
        for k in range(UNROLLED):
            at = f.add(i, k * lanes)
            total = f.b.fadd(f.load(buffer, at, _F32, lanes), f.load(buffer, f.add(at, third), _F32, lanes))
            f.store(total, buffer, f.add(at, third, third), _F32, lanes)
    f.finish()


def _count(f: FunctionEmitter) -> None:
    """Additions and exclusive ors in turn: LLVM cannot make one of two. The buffer holds the sum and both operands."""
    rounds, buffer = f.fn.args
    total, added, flipped = (f.load(buffer, k, _I64) for k in range(3))
    place = f.local(I64, total)
    with f.loop(0, rounds):
        total = f.get(place, I64)
        for _ in range(LINKS // 2):
            total = f.b.xor(f.b.add(total, added), flipped)
        f.set(place, total)
    f.store(f.get(place, I64), buffer, 0, _I64)
    f.finish()
