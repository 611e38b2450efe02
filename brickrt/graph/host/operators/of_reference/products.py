"""Products of matrices, and of tensors by the letters of their axes (Einsum)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from brickrt.graph.host.host_operator import Attributes, HostOperator, register
from brickrt.graph.host.node_arrays import Arrays, shape_of
from brickrt.graph.host.operators.of_reference.shapes import broadcast_size


def matmul_elements(arrays: Arrays, at: Attributes) -> int:
    """Elements of a product of matrices, or of stacks of them."""
    a, b = (x.shape for x in (arrays[0], arrays[1]) if x is not None)
    rows, columns = (a[-2] if len(a) > 1 else 1), (b[-1] if len(b) > 1 else 1)
    return broadcast_size([a[:-2], b[:-2], ()]) * rows * columns if max(len(a), len(b)) > 2 else rows * columns


def matmul_products(arrays: Arrays, at: Attributes) -> int:
    """Products of a product of matrices, or of stacks of them."""
    a, b = shape_of(arrays), shape_of(arrays, 1)
    batch = max(math.prod(a[:-2]), math.prod(b[:-2]))
    return batch * math.prod(a[-2:]) * (b[-1] if len(b) > 1 else 1)


def _gemm_elements(arrays: Arrays, at: Attributes) -> int:
    a, b = shape_of(arrays), shape_of(arrays, 1)
    return a[1 if at.get("transA") else 0] * b[0 if at.get("transB") else 1]


def _gemm_products(arrays: Arrays, at: Attributes) -> float:
    """As many as NumPy's `dot` makes, of tensors of more dimensions too."""
    a, b = shape_of(arrays), shape_of(arrays, 1)
    return math.prod(a) * math.prod(b) / max(1, b[-1 if at.get("transB") else -2])


def _einsum(arrays: Arrays, at: Attributes) -> tuple[float, float]:
    """Products of NumPy's own way through the terms, and elements of its largest step."""
    operands = [x for x in arrays if x is not None]
    equation = at["equation"].decode().replace(" ", "")
    terms, output = _terms(equation, [x.ndim for x in operands])
    sizes: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        for letter, extent in zip(term, x.shape, strict=True):
            sizes[letter] = max(extent, sizes.get(letter, 1))
    path, _ = np.einsum_path(equation, *operands, optimize="greedy")
    products = largest = 0.0
    for step in path[1:]:
        taken = [terms[k] for k in step]
        terms = [term for k, term in enumerate(terms) if k not in step]
        letters = set[str]().union(*taken)
        kept = letters & set(output).union(*terms)
        terms.append("".join(kept))
        products += math.prod(float(sizes[c]) for c in letters)
        largest = max(largest, math.prod(float(sizes[c]) for c in kept))
    return products, largest


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of the inputs and of the output, '...' as letters too."""
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    more = max((rank - len(term) + 3 for term, rank in zip(terms, ranks) if "..." in term), default=0)
    dots = "".join(chr(0x3B1 + k) for k in range(more))
    if not arrow:
        output = dots + "".join(sorted(c for c in set(left) if left.count(c) == 1 and c.isalpha()))
    own = [more - (rank - len(term) + 3) for term, rank in zip(terms, ranks, strict=True)]
    filled = [term.replace("...", dots[max(0, skipped) :]) for term, skipped in zip(terms, own)]
    return filled, output.replace("...", dots)


register(HostOperator(matmul_elements, matmul_products), "MatMulInteger")
register(HostOperator(None, lambda arrays, at: matmul_products([arrays[0], arrays[3]], at)), "QLinearMatMul")
register(HostOperator(_gemm_elements, _gemm_products), "Gemm")
register(
    HostOperator(
        elements=None,
        products=lambda arrays, at: _einsum(arrays, at)[0],
        by_library=False,
        working_bytes=lambda arrays, at, made, usual: max(usual, 8 * _einsum(arrays, at)[1]),
    ),
    "Einsum",
)
register(HostOperator(elements=None, temporaries=6), "Attention", "RotaryEmbedding")
