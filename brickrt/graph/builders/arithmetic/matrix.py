"""Matrix products."""

from __future__ import annotations

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, elementwise, optional, require_float, transpose, view, wide
from brickrt.graph.builders.integers.block_weights import block_product
from brickrt.graph.builders.integers.integer_products import integer_matmul
from brickrt.graph.builders.scalar import add, like, mul
from brickrt.graph.builders.shapes.one_hot import rows_by_one_hot
from brickrt.ops.operators.matmul import MatMul


@builds("MatMul")
def matmul(b: Builder, node: OnnxNode) -> str:
    """The product of NumPy, computed in float32 for float16."""
    x, y = node.inputs
    found = integer_matmul(b, x, y) or block_product(b, x, y) or rows_by_one_hot(b, x, y)
    if found:
        return found
    x, y = (wide(b, name) for name in node.inputs)
    return convert(b, product(b, x, y), b.type(node.inputs[0]).dtype)


def product(b: Builder, x: str, y: str) -> str:
    """The NumPy matrix product: a vector is a row on the left, a column on the right, and drops out of the result."""
    left, right = b.type(x), b.type(y)
    row = view(b, x, (1, *left.shape)) if left.rank == 1 else x
    column = view(b, y, (*right.shape, 1)) if right.rank == 1 else y
    result = b.emit(MatMul(), row, column)
    shape = list(b.type(result).shape)
    if right.rank == 1:
        del shape[-1]
    if left.rank == 1:
        del shape[-1 if right.rank == 1 else -2]
    return view(b, result, shape)


@builds("Gemm")
def gemm(b: Builder, node: OnnxNode) -> str:
    """alpha * A' * B' + beta * C."""
    found = _stored_gemm(b, node)
    if found:
        return found
    x, y = node.inputs[:2]
    require_float(b, x, y)
    if b.type(x).rank != 2 or b.type(y).rank != 2:
        raise ValueError(f"'{x}' and '{y}' must be matrices")
    x = wide(b, _transposed(b, x) if node.attrs.get("transA", 0) else x)
    y = wide(b, _transposed(b, y) if node.attrs.get("transB", 0) else y)
    alpha, beta = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)
    y, alpha = _absorbed(b, y, alpha)
    c = _scaled(b, wide(b, optional(node, 2)), beta) if optional(node, 2) and beta != 0 else ""
    columns = b.type(y).shape[1]
    if c and alpha == 1 and b.type(c).size == columns and b.type(c).shape[-1:] == (columns,):
        result = b.emit(MatMul(bias=True), x, y, view(b, c, (columns,)))
    else:
        result = _scaled(b, b.emit(MatMul(), x, y), alpha)
        result = elementwise(b, add, result, c) if c else result
    return convert(b, result, b.type(node.inputs[0]).dtype)


def _stored_gemm(b: Builder, node: OnnxNode) -> str | None:
    """The product of quantized operands, or with a quantized constant, where it has no factors and, if any, a bias of
    one value per column."""
    given, bias = node.attrs, optional(node, 2)
    plain = not given.get("transA", 0) and given.get("alpha", 1.0) == 1 and (not bias or given.get("beta", 1.0) == 1)
    turned = bool(given.get("transB", 0))
    shape = b.type(node.inputs[1]).shape
    if not plain or len(shape) != 2 or (bias and b.type(bias).shape != (shape[0 if turned else 1],)):
        return None
    x, y = node.inputs[:2]
    return integer_matmul(b, x, y, bias, turned) or block_product(b, x, y, bias, turned)


def _transposed(b: Builder, name: str) -> str:
    known = b.known(name)
    return transpose(b, name, (1, 0)) if known is None else b.constant(known.T)


def _absorbed(b: Builder, y: str, alpha: float) -> tuple[str, float]:
    """A factor multiplied into a constant; what is left of it otherwise."""
    known = b.known(y)
    if alpha == 1 or known is None:
        return y, alpha
    return b.constant((known * np.float64(alpha)).astype(known.dtype)), 1.0


def _scaled(b: Builder, name: str, factor: float) -> str:
    """The tensor times a factor."""
    name, left = _absorbed(b, name, factor)
    return name if left == 1 else elementwise(b, lambda x: mul(x, like(x, left)), name)
