"""What computes and moves elements compiles for GPUs, without spills; each expression function for each type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import brickrt.ops.cuda.all_kernels  # noqa: F401  (makes the kernels known)
from brickrt.graph.errors import BrickError
from brickrt.ops.base import Op
from brickrt.ops.cuda.kernel import Kernel, make_kernel
from brickrt.ops.cuda.operand import dense
from brickrt.ops.cuda.printing.types import compute_ctype, ctype
from brickrt.ops.definitions.elementwise_functions import FUNCTIONS
from brickrt.ops.expr import Apply, Expr, apply, arg, cast, const
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Concat, Reorder, Take, Transpose, View
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp
from brickrt.ops.types import TensorType
from brickrt.runtime.cuda.kernels import compile as compiling
from brickrt.runtime.cuda.kernels.kernel_sources import function_of, source_of
from tests.support.cuda.functors import print_functor

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
IMAGE = (2, 24, 14, 14)
TAPS = AxisTaps(((0, 1),) * 28, ((0.5, 0.5),) * 28)
FLOATS = [np.dtype(d) for d in (BFLOAT16, "float32", "float64")]
INTS = [np.dtype(d) for d in ("int8", "uint32", "int64")]


@pytest.fixture(autouse=True)
def compiler() -> None:
    try:
        compiling._compiler()
    except BrickError as e:
        pytest.skip(str(e))


def kernel(op: Op, *shapes: tuple[int, ...], layouts: str, dtype: str = "float32") -> Kernel:
    """`layouts` by their initials."""
    names = [{"p": "plain", "l": "last"}[c] for c in layouts]
    types = [TensorType(s, dtype) for s in shapes]
    ins = [dense(t, at) for t, at in zip(types, names)]
    return make_kernel(op, ins, dense(op.infer(types), names[-1]), [False] * len(ins))


def kernels() -> list[Kernel]:
    def gated(d: str) -> Expr:
        return apply("mul", apply("add", arg(0, d), arg(1, d)), apply("sigmoid", arg(0, d)))

    pad, twice = (-1, *range(14), -1), tuple(i // 2 for i in range(28))
    return [
        kernel(Map(gated("float32")), IMAGE, (24, 1, 1), layouts="lpl"),
        kernel(Map(gated("float16")), IMAGE, IMAGE, layouts="lll", dtype="float16"),
        kernel(Map(cast(arg(0, "float64"), BFLOAT16)), (197, 197), layouts="pp", dtype="float64"),
        kernel(Reorder("last"), IMAGE, layouts="pl"),
        kernel(Reorder("plain"), IMAGE, layouts="lp", dtype="float16"),
        kernel(Transpose((0, 2, 1, 3)), IMAGE, layouts="pp", dtype="uint8"),
        kernel(View((48, 196)), IMAGE, layouts="lp"),
        kernel(View((2, 24 * 196)), IMAGE, layouts="lp"),
        kernel(Concat(1), IMAGE, (2, 3, 14, 14), layouts="lll"),
        kernel(Concat(1), IMAGE, IMAGE, layouts="plp"),
        kernel(Take((None, None, pad, pad), 1), IMAGE, layouts="ll"),
        kernel(Take((None, None, twice, twice)), IMAGE, layouts="pp", dtype="bool"),
        kernel(Interp((None, None, TAPS, TAPS)), IMAGE, layouts="ll"),
        kernel(Interp((None, None, TAPS, TAPS)), IMAGE, layouts="pp", dtype="uint8"),
    ]


def expressions() -> list[Apply]:
    found: list[Apply] = []
    for name, function in FUNCTIONS.items():
        for d in (*(FLOATS if "f" in function.kinds else ()), *(INTS if "i" in function.kinds else ())):
            operands = [arg(k, d) for k in range(function.operands)]
            found.append(apply(name, *(operands if name != "where" else [arg(0, bool), *operands[1:]])))
    for d in FLOATS:
        found += [apply("max", arg(0, d), const(c, d)) for c in (np.inf, -np.inf, np.nan, 0.1, -2)]
    for d in INTS:
        found += [apply("add", arg(0, d), const(np.iinfo(d).min, d))]
    casts = [cast(arg(0, a), b) for a in FLOATS + INTS for b in (*FLOATS, *INTS, np.dtype(bool))]
    return found + [c for c in casts if isinstance(c, Apply)]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_kernels_compile_without_spills(arch) -> None:
    """All in one module: half of the time of a kernel alone is that of the headers."""
    texts = [source_of([function_of(k)], False, 256).text for k in kernels()]
    functions = compiling.compile_module("\n".join(texts), arch).functions
    assert len(functions) == len(texts)
    for function in functions:
        assert (function.spill_stores, function.spill_loads) == (0, 0), function


def test_expressions_compile() -> None:
    lines = ['#include "math.cuh"']
    calls = []
    for n, expr in enumerate(expressions()):
        dtypes = [e.dtype for e in expr.args]
        lines.append(print_functor(f"F{n}", expr, dtypes))
        args = ", ".join(f"({compute_ctype(d)})(({ctype(d)}*)p)[{k}]" for k, d in enumerate(dtypes))
        calls.append(f"if (n == {n}) (({ctype(expr.dtype)}*)p)[8] = ({ctype(expr.dtype)})F{n}{{}}({args});")
    text = "\n".join([*lines, 'extern "C" __global__ void all(char* p, int n) {', *calls, "}\n"])
    assert compiling.compile_module(text, "sm_80").image
