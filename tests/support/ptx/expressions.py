"""Expressions as PTX, with the functions that the device's own library has."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from brickrt.ops.cuda.printing.types import compute_ctype, ctype
from brickrt.ops.expr import Expr
from tests.support.cuda.functors import print_functor
from tests.support.ptx.build import compiled

_LOOP = """
extern "C" __global__ void check{n}(long long count, const char* const* at) {{
    for (long long i = threadIdx.x; i < count; i += blockDim.x) (({out}*)at[0])[i] = ({out})F{n}{{}}({args});
}}
"""


def run(cases: Sequence[tuple[Expr, Sequence[np.ndarray]]], arch: str) -> list[np.ndarray]:
    """Values of expressions over arrays of one shape each, all in one library."""
    text = '#include "math.cuh"\n'
    for n, (expr, arrays) in enumerate(cases):
        args = ", ".join(f"({compute_ctype(a.dtype)})(({ctype(a.dtype)}*)at[{1 + k}])[i]" for k, a in enumerate(arrays))
        text += print_functor(f"F{n}", expr, [a.dtype for a in arrays])
        text += _LOOP.format(n=n, out=ctype(expr.dtype), args=args)
    library, results = compiled(text, arch), []
    for n, (expr, arrays) in enumerate(cases):
        results.append(np.empty(arrays[0].shape, expr.dtype))
        held = [results[-1], *(np.ascontiguousarray(a) for a in arrays)]
        at = np.array([a.ctypes.data for a in held])
        ranges = [(a.ctypes.data, a.nbytes) for a in (at, *held)]
        kernel = library.kernel(f"check{n}", lambda *_, known=ranges: known)
        kernel(1, 32, ctypes.c_longlong(0), ctypes.c_longlong(results[-1].size), ctypes.c_void_p(at.ctypes.data), 1)
    return results
