"""Pooling: the window as traits for pool.cuh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from brickrt.ops.cuda.kernel import THREADS, Kernel, kernel_for
from brickrt.ops.cuda.operand import Operand
from brickrt.ops.cuda.printing.expressions import literal
from brickrt.ops.cuda.printing.functions import device_function
from brickrt.ops.cuda.printing.traits import bool_text, table_text
from brickrt.ops.cuda.printing.types import compute_ctype, ctype
from brickrt.ops.definitions.expressions import compute_type
from brickrt.ops.operators.pool import Pool, lowest
from brickrt.ops.types import is_floating

KINDS = {"max": "MAX", "average": "AVERAGE", "lp": "LP"}


class PoolKernel(Kernel):
    """Every thread computes outputs of its own; those of neighbouring channels together where they are contiguous."""

    op: Pool
    headers: ClassVar[tuple[str, ...]] = ("math.cuh", "vectors.cuh", "pool.cuh")

    def emit(self, name: str) -> str:
        """Traits for pool.cuh, and a function that hands them to its template."""
        op, (x,), out = self.op, self.ins, self.out
        dims = len(op.kernel)
        order = _order(out)
        vector = _vector(x, out, self.largest or out.shape)
        pads = (op.pads, op.pads_end) if op.count_include_pad else ((0,) * dims, (0,) * dims)
        counted = [e + p for e, p in zip(x.shape[2:], pads[1])]
        first = literal(lowest(compute_type(x.dtype)) if op.kind == "max" else 0, x.dtype)
        tables = {
            "order": ("int", order),
            "from": ("long long", x.strides),
            "to": ("long long", out.strides),
            "kernel": ("int", op.kernel),
            "stride": ("int", op.strides),
            "dilation": ("int", op.dilations),
            "pad": ("int", op.pads),
            "extent": ("int", x.shape[2:]),
            "padded": ("bool", _padded(op, x, out)),
            "counted_from": ("int", [-p for p in pads[0]]),
            "counted_to": ("int", counted),
        }
        return (
            f"struct {name}_traits {{\n"
            f"using T = {ctype(x.dtype)};\nusing A = {compute_ctype(x.dtype)};\n"
            f"static constexpr int DIMS = {dims}, TAPS = {math.prod(op.kernel)}, V = {vector};\n"
            f"static constexpr int KIND = brick::{KINDS[op.kind]}, NORM = {op.p};\n"
            f"static constexpr bool ALIGNED = {bool_text(vector > 1)};\n"
            f"static BRICK_DEVICE A first() {{ return {first}; }}\n"
            + "".join(table_text(kind, key, values) for key, (kind, values) in tables.items())
            + "};\n"
            + device_function(name, f"brick::Pool<{name}_traits>::box(s, at);")
        )


def _padded(op: Pool, x: Operand, out: Operand) -> list[int]:
    """Per spatial dimension, 1 where some window reaches beyond the input, else 0."""
    lo, hi = op.window.reach(np.zeros((1, len(op.kernel)), np.int64), np.asarray([out.shape[2:]], np.int64))
    return [int(first < 0 or end > extent) for first, end, extent in zip(lo[0], hi[0], x.shape[2:])]


def _order(out: Operand) -> list[int]:
    """Dimensions, outermost in memory first; where those of one element stand does not matter."""
    return sorted(range(out.rank), key=lambda d: (out.shape[d] > 1, -out.strides[d]))


def _vector(x: Operand, out: Operand, box: Sequence[int]) -> int:
    """Channels at once: as many as both operands allow, but not so many that threads of the block are idle."""
    if x.strides[1] != 1 or out.strides[1] != 1 or _order(out)[-1] != 1:
        return 1
    vector = min(x.vector, out.vector)
    while vector > 1 and (vector > box[1] or math.prod(box) // vector < THREADS):
        vector //= 2
    return vector


@kernel_for(Pool)
def _choose(op: Pool, ins: tuple[Operand, ...], out: Operand) -> type[Kernel]:
    if op.kind != "max" and not is_floating(ins[0].dtype):
        raise LookupError(f"no CUDA kernel for {op.kind} pools of {ins[0].dtype.name}")
    return PoolKernel
