"""Matrix products of integers, by a library for matrices of floats where all sums are exact in these: NumPy's own loops
take ten times as long."""

from __future__ import annotations

import math

import numpy as np
from onnx.reference.ops.op_matmul import MatMul as ReferenceMatMul

from brickrt.graph.host.host_operator import Attributes, HostOperator, evaluates
from brickrt.graph.host.node_arrays import FLOAT, PLACE, Arrays
from brickrt.graph.host.operators.of_reference.products import matmul_elements, matmul_products

EXACT: tuple[tuple[int, type[np.floating]], ...] = ((1 << 24, np.float32), (1 << 53, np.float64))
"""Up to where each type of floats has all integers."""
LEAST_PRODUCTS_PER_ELEMENT = 8
"""Products for each element read, from which on elements are turned into floats."""


def _bytes(arrays: Arrays, at: Attributes, made: int, usual: float) -> float:
    """Integers and their product as floats, and the product as the widest integers."""
    a, b = (np.asarray(x) for x in arrays)
    if a.dtype.kind not in "iu":
        return usual
    return FLOAT * (a.size + b.size) + made // a.itemsize * (FLOAT + PLACE + a.itemsize)


@evaluates(HostOperator(matmul_elements, matmul_products, working_bytes=_bytes), "MatMul")
class HostMatMul(ReferenceMatMul):
    """MatMul; what integers overflow wraps around."""

    def _run(self, a, b):
        found = exact_product(a, b)
        return super()._run(a, b) if found is None else (np.asarray(found),)


def exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """The product of integers; None where sums may be too large for floats, where it is not worth while, and for
    other elements."""
    if a.dtype != b.dtype or a.dtype.kind not in "iu" or min(a.ndim, b.ndim) < 1 or not a.size or not b.size:
        return None
    columns = b.shape[-1] if b.ndim > 1 else 1
    if min(a.size * columns, b.size * (a.size // a.shape[-1])) < LEAST_PRODUCTS_PER_ELEMENT * (a.size + b.size):
        return None
    largest = a.shape[-1] * math.prod(max(int(x.max()), -int(x.min())) for x in (a, b))
    dtype = next((dtype for limit, dtype in EXACT if largest <= limit), None)
    if dtype is None:
        return None
    product = np.matmul(a.astype(dtype), b.astype(dtype))
    return product.astype(np.int64).astype(a.dtype, copy=False)
