"""Kernels whose machine code tests look at: dense operands, channels innermost and as many as whole vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import ml_dtypes
import numpy as np

import brickrt.ops.cuda.all_kernels  # noqa: F401  (makes the kernels known)
from brickrt.ops.base import Op
from brickrt.ops.cuda.kernel import THREADS, Kernel, Precision, make_kernel
from brickrt.ops.cuda.operand import dense
from brickrt.ops.expr import apply, arg, const
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Reorder, Take
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.types import Shape, TensorType
from brickrt.runtime.cuda.kernels.compile import compile_modules
from brickrt.runtime.cuda.kernels.kernel_sources import function_of, source_of
from tests.support.cuda.cases.row_cases import norm, softmax
from tests.support.sass.read import MachineFunction, disassemble

IMAGE = (2, 64, 56, 56)
KINDS: dict[str, tuple[np.dtype, Precision]] = {
    "fp32": (np.dtype(np.float32), "fp32"),
    "tf32": (np.dtype(np.float32), "tf32"),
    "fp16": (np.dtype(np.float16), "fp32"),
    "bf16": (np.dtype(ml_dtypes.bfloat16), "fp32"),
}


class CodeCase(NamedTuple):
    """A kernel by its name in MAKERS, the kind of its elements, and what it is compiled for."""

    name: str
    kind: str
    arch: str


def kernel_of(op: Op, shapes: Sequence[Shape], layouts: str, kind: str, constants: Sequence[int] = ()) -> Kernel:
    """`layouts` of all inputs and of the output by their initials, plain or last."""
    dtype, precision = KINDS[kind]
    names = [{"p": "plain", "l": "last"}[c] for c in layouts]
    types = [TensorType(shape, dtype) for shape in shapes]
    out = op.infer(types)
    ins = [dense(t, at) for t, at in zip(types, names)]
    return make_kernel(
        op, ins, dense(out, names[-1]), [k in constants for k in range(len(types))], precision, out.shape
    )


def conv(size: int, channels: int = 64, groups: int = 1, stride: int = 1) -> Callable[[str], Kernel]:
    """A convolution with constant weights and bias."""
    kernel, pads = (size, size), (size // 2, size // 2)
    op = Conv(kernel, (stride, stride), (1, 1), pads, pads, groups, True)
    shapes = [IMAGE, (channels, IMAGE[1] // groups, *kernel), (channels,)]
    return lambda kind: kernel_of(op, shapes, "lppl", kind, (1, 2))


def transposed(size: int) -> Callable[[str], Kernel]:
    """A transposed convolution of stride 2, with constant weights and bias."""
    kernel, pads = (size, size), ((size - 2) // 2,) * 2
    op = ConvTranspose(kernel, (2, 2), (1, 1), pads, pads, (0, 0), 1, True)
    return lambda kind: kernel_of(op, [IMAGE, (IMAGE[1], 64, *kernel), (64,)], "lppl", kind, (1, 2))


def matmul(constant: bool) -> Callable[[str], Kernel]:
    """A product of matrices: of a batch with constant weights, or with a batch."""
    shapes = [(4, 256, 256), (256, 256) if constant else (4, 256, 256)]
    return lambda kind: kernel_of(MatMul(), shapes, "ppp", kind, (1,) if constant else ())


def chain(kind: str) -> Kernel:
    """The larger of a sum and zero."""
    dtype = KINDS[kind][0]
    expr = apply("max", apply("add", arg(0, dtype), arg(1, dtype)), const(0, dtype))
    return kernel_of(Map(expr), [IMAGE, IMAGE], "lll", kind)


def pool(how: Literal["max", "average"]) -> Callable[[str], Kernel]:
    """A pool of 3 x 3 at stride 2."""
    op = Pool(how, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1))
    return lambda kind: kernel_of(op, [IMAGE], "ll", kind)


def rows(kind: str) -> Kernel:
    """A softmax along rows of 256."""
    return kernel_of(softmax((3,), KINDS[kind][0]), [(1, 8, 256, 256)], "pp", kind)


def channels(kind: str) -> Kernel:
    """A norm over the channels of each pixel."""
    return kernel_of(norm((1,), IMAGE[1], 0, KINDS[kind][0]), [IMAGE], "ll", kind)


PADDED = (-1, *range(IMAGE[2]), -1)
MAKERS: dict[str, Callable[[str], Kernel]] = {
    "conv3": conv(3),
    "conv1": conv(1, 128),
    "transposed2": transposed(2),
    "transposed3": transposed(3),
    "matmul": matmul(True),
    "batches": matmul(False),
    "depthwise3": conv(3, 64, 64),
    "depthwise5": conv(5, 64, 64),
    "map": chain,
    "max": pool("max"),
    "average": pool("average"),
    "space": lambda kind: kernel_of(Reduce("sum", (2, 3), True), [IMAGE], "ll", kind),
    "softmax": rows,
    "norm": channels,
    "concat": lambda kind: kernel_of(Concat(1), [IMAGE, IMAGE], "lll", kind),
    "pad": lambda kind: kernel_of(Take((None, None, PADDED, PADDED), 0), [IMAGE], "ll", kind),
    "to plain": lambda kind: kernel_of(Reorder("plain"), [IMAGE], "lp", kind),
    "to last": lambda kind: kernel_of(Reorder("last"), [IMAGE], "pl", kind),
}


def machine_code(cases: Iterable[CodeCase]) -> dict[CodeCase, MachineFunction]:
    """The kernel function of each case, as programs have it: one whose launches have no tasks that wait."""
    sources = {case: source_of([function_of(MAKERS[case.name](case.kind))], False, THREADS) for case in cases}
    found: dict[tuple[str, str], MachineFunction] = {}
    for arch in {case.arch for case in sources}:
        texts = [source.text for case, source in sources.items() if case.arch == arch]
        for module in compile_modules(["\n".join(texts[0::2]), "\n".join(texts[1::2])], arch):
            found.update(((arch, f.name), f) for f in disassemble(module.image))
    return {case: found[case.arch, source.name] for case, source in sources.items()}
