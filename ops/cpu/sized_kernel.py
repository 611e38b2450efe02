"""Kernels whose code does not know all extents and strides of their operands: it reads them from a table (`sizes.py`).

A kernel with numbers left open is an outline. Kernels with one outline have the same code, as far as their numbers give
the same answers to what the emitter asked of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from llvmlite import ir

from brickrt.ops.cpu.arithmetic.open_constants import with_open_constants
from brickrt.ops.cpu.compile import to_object
from brickrt.ops.cpu.emit.function_emitter import FunctionEmitter
from brickrt.ops.cpu.emit.size_program import SizeProgram
from brickrt.ops.cpu.emit.sizes import SizeTable
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.cpu.operand import Operand
from brickrt.ops.types import OpenNumber, TensorType

Take = Callable[[int], Any]
WORD = 8  # bytes of an entry of a table


@dataclass(frozen=True)
class SizedCode:
    """Code of an outline, an object file with the function `symbol`; its `sizes` tell which numbers it is good for, and
    the table that it is given. Those of a kernel that leaves nothing open are empty."""

    symbol: str
    sizes: SizeProgram
    image: bytes

    def table(self, outline: Outline) -> np.ndarray | None:
        """What the code reads, int64; None where it is not good for the numbers of a kernel."""
        found = self.sizes.table(outline.numbers)
        return None if found is None else np.concatenate([np.array(found, np.int64), outline.look_ups])


class OpenPlace(OpenNumber):
    """In place of a number that is left open."""

    def __repr__(self) -> str:
        return "·"


@dataclass(frozen=True)
class Outline:
    """A kernel's identity without the `numbers` left open, and what it looks up: int64."""

    text: str
    numbers: tuple[int, ...]
    look_ups: np.ndarray = field(compare=False)


def outline(kernel: Kernel, also_open: int | None = None) -> Outline:
    """The kernel with numbers left open, and these; with extents of `also_open` among them, however small."""
    numbers: list[int] = []
    hole = OpenPlace()

    def take(number: int) -> OpenPlace:
        numbers.append(number)
        return hole

    opened = opened_kernel(kernel, take, also_open)
    return Outline(f"{type(kernel).__name__} {opened!r}", tuple(numbers), in_words(kernel.look_ups()))


def outlines_of_larger(kernel: Kernel) -> Iterator[Outline]:
    """Its outlines with an extent left open that is so small that the kernel's own code knows it: that of a kernel of
    larger extents, whose code may be good for it too."""
    extents = (extent for operand in (kernel.out, *kernel.ins) for extent in operand.shape)
    for extent in sorted({extent for extent in extents if 1 < extent < kernel.least_open}):
        yield outline(kernel, extent)


def in_words(tables: Sequence[np.ndarray]) -> np.ndarray:
    """Look-ups one behind the other as int64, each from a word on, as `LookUps` finds them."""
    found = [np.zeros(0, np.int64)]
    for table in tables:
        data = table.tobytes()
        found.append(np.frombuffer(data + bytes(-len(data) % WORD), np.int64))
    return np.concatenate(found)


def emit_sized(kernel: Kernel, name: str) -> tuple[ir.Module, SizeTable]:
    """The kernel alone in a module, under `name`, and the table that it reads: its last pointer."""
    module, table = ir.Module(name), SizeTable(broad=kernel.broad)
    f = FunctionEmitter(module, name, sizes_at=kernel.pointers, sizes=table, isa=kernel.isa)
    opened_kernel(kernel, table.number).emit(f)
    f.finish()
    return module, table


def compiled_code(kernel: Kernel, symbol: str) -> SizedCode:
    """The code of a kernel, which may be good for others with its outline."""
    module, table = emit_sized(kernel, symbol)
    image = to_object(module, kernel.isa, kernel.compiles_quickly)
    return SizedCode(symbol, SizeProgram.of(table.answers, table.entries), image)


def opened_kernel(kernel: Kernel, take: Take, also_open: int | None = None) -> Kernel:
    """The kernel with what `take` gives in place of each number that is left open, always in the same order."""
    if not kernel.sized:
        return kernel

    def opened(operand: Operand, i: int | None) -> Operand:
        return _opened(operand, kernel, i, take, also_open)

    out = opened(kernel.out, None)
    ins = tuple(
        operand if packed and not kernel.opens_packed(i) else opened(operand, i)
        for i, (operand, packed) in enumerate(zip(kernel.ins, kernel.packed, strict=True))
    )
    ahead = tuple(replace(p, operand=opened(p.operand, None)) for p in kernel.prefetched)
    shape = tuple(take(n) if k in kernel.open_classes else n for k, n in enumerate(kernel.shape_class))
    pace = None if kernel.prefetch_bytes is None else take(kernel.prefetch_bytes)
    op, decided = kernel.opened_op(take)
    op = with_open_constants(op, take)
    return replace(
        kernel, op=op, out=out, ins=ins, prefetched=ahead, prefetch_bytes=pace, shape_class=shape, decided=decided
    )


def _opened(operand: Operand, kernel: Kernel, i: int | None, take: Take, also_open: int | None) -> Operand:
    """An operand that lies as input `i` or the output does, with extents left open, and with them the strides of
    dimensions outside of them, and of one element alone. That stays one: it may be broadcast. The innermost stride is
    known."""
    extents, rank, least, dims = operand.shape, operand.rank, kernel.least_open, kernel.open_dims(i)
    opened = [d for d in dims if d < rank and (extents[d] >= least or extents[d] == also_open)]
    shape = tuple([take(extent) if d in opened else extent for d, extent in enumerate(extents)])
    last = max(opened, default=0)
    alone = [d for d in dims if d < rank - 1 and extents[d] == 1]
    strides = tuple([take(s) if (d < last or d in alone) and s > 1 else s for d, s in enumerate(operand.strides)])
    return Operand(TensorType(shape, operand.dtype), strides, operand.block)
