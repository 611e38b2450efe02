"""Kernels that compile fast."""

from __future__ import annotations

import os

import numpy as np

import brickrt.ops.cpu.all_kernels  # noqa: F401  (registers the kernels)
from brickrt.ops.cpu.isa import Isa
from brickrt.ops.cpu.kernel import Kernel, choose_kernel
from brickrt.ops.cpu.operand import dense
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.map import Map
from brickrt.ops.types import TensorType

ISA = Isa(4, 16, "x86-64" if os.uname().machine == "x86_64" else "")


def kernels(n: int) -> list[Kernel]:
    """As many different ones: x + x, x + x + x, … of 1, 2, 3 … elements."""
    made = []
    for size in range(1, n + 1):
        kind = TensorType((size,), np.float32)
        total = arg(0, kind.dtype)
        for _ in range(size):
            total = apply("add", total, arg(0, kind.dtype))
        op = Map(total)
        family = choose_kernel(op, [dense(kind)], dense(kind), ISA)
        made.append(family(op, (dense(kind),), dense(kind), ISA, (False,)))
    return made
