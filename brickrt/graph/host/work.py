"""How long NumPy takes at least for a node that runs on the host, and what memory it needs meanwhile. Nothing
interrupts a call of NumPy, so it is asked before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

Arrays = Sequence[np.ndarray | None]

PRODUCTS_PER_SECOND = 1 << 32
"""Products of float32 and float64, as a library for matrices computes them with one core."""
SLOW_PRODUCTS_PER_SECOND = 1 << 29
"""Products of other types, and sums that are no matrix products, which NumPy computes one by one."""
OBJECT_BYTES = 160
"""What an array takes beside its elements."""
TEXT_BYTES = 80
"""A short text as a Python object, and its place in an array."""
USUAL_TEMPORARIES = 3
"""Arrays of the size of its inputs and outputs that a node makes, itself in NumPy's terms."""
TEMPORARIES = {
    **dict.fromkeys(("GridSample", "AffineGrid"), 16),
    **dict.fromkeys(("Unique", "NonZero", "Resize", "Upsample", "STFT", "DFT", "MelWeightMatrix"), 8),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "Attention", "RotaryEmbedding", "TfIdfVectorizer"), 6),
}
VIEWS = frozenset(("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Shape", "Size", "Slice", "Transpose"))


def memory_of(x: np.ndarray) -> int:
    """Bytes of an array, and of its texts."""
    if x.dtype.kind != "O":
        return x.nbytes
    return x.size * TEXT_BYTES + sum(len(text) for text in x.flat if isinstance(text, str | bytes))


def seconds_of(node: onnx.NodeProto, arrays: Arrays) -> float:
    """Seconds that the node's products take at least; 0 where there are none, or it makes no sense."""
    products = _PRODUCTS.get(node.op_type)
    if products is None:
        return 0.0
    try:
        count = float(products(arrays, attributes(node)))
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return 0.0  # running the node says what is wrong in better words
    quick = arrays[0] is not None and arrays[0].dtype in (np.float32, np.float64) and node.op_type != "Einsum"
    return count / (PRODUCTS_PER_SECOND if quick else SLOW_PRODUCTS_PER_SECOND)


def temporary_bytes(node: onnx.NodeProto, arrays: Arrays, made: int, read: int) -> float:
    """Bytes of the outputs, `made`, and of what the node computes on its way there from so many that it reads."""
    if node.op_type in VIEWS:
        return made
    between: float = TEMPORARIES.get(node.op_type, USUAL_TEMPORARIES) * (made + read)
    if node.op_type == "Cast" and attributes(node).get("to") == onnx.TensorProto.STRING:
        between += TEXT_BYTES * max((x.size for x in arrays[:1] if x is not None), default=0)
    if node.op_type == "SplitToSequence":
        between += OBJECT_BYTES * max((x.size for x in arrays[:1] if x is not None), default=0)
    if node.op_type == "Einsum":
        between = max(between, 8 * _einsum(arrays, attributes(node))[1])
    if node.op_type in ("Conv", "ConvTranspose", "QLinearConv", "ConvInteger"):
        taps = math.prod(_kernel(arrays, attributes(node)))
        between += 8 * taps * max((x.size for x in arrays[:1] if x is not None), default=0)
    return between


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes as Python values."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def integers_of(node: onnx.NodeProto) -> Iterator[int]:
    """The integers among a node's attributes."""
    for a in node.attribute:
        yield a.i
        yield from a.ints


def _shapes(arrays: Arrays) -> list[tuple[int, ...]]:
    return [() if x is None else x.shape for x in arrays]


def _matmul(arrays: Arrays, at: dict[str, Any]) -> int:
    a, b = _shapes(arrays)[:2]
    batch = max(math.prod(a[:-2]), math.prod(b[:-2]))
    return batch * math.prod(a[-2:]) * (b[-1] if len(b) > 1 else 1)


def _quantized_matmul(arrays: Arrays, at: dict[str, Any]) -> int:
    return _matmul([arrays[0], arrays[3]], at)


def _gemm(arrays: Arrays, at: dict[str, Any]) -> float:
    """As many as NumPy's `dot` makes, of tensors of more dimensions too."""
    a, b = _shapes(arrays)[:2]
    return math.prod(a) * math.prod(b) / max(1, b[-1 if at.get("transB") else -2])


def _kernel(arrays: Arrays, at: dict[str, Any]) -> tuple[int, ...]:
    weights = next((x for x in arrays[1:] if x is not None and x.ndim > 2), None)
    return tuple(at.get("kernel_shape") or (() if weights is None else weights.shape[2:]))


def _conv(arrays: Arrays, at: dict[str, Any]) -> float:
    """Every tap of every weight at every output: as many as inputs where the window moves by one."""
    x, weights = _shapes(arrays)[0], next(x for x in arrays[1:] if x is not None and x.ndim > 2)
    strides = at.get("strides", [1] * (len(x) - 2))
    pads = at.get("pads", [0] * 2 * (len(x) - 2))
    n = len(x) - 2
    outputs = math.prod(max(1, (x[2 + k] + pads[k] + pads[n + k]) / max(1, strides[k])) for k in range(n))
    return x[0] * weights.size * outputs


def _conv_transpose(arrays: Arrays, at: dict[str, Any]) -> int:
    x, w = _shapes(arrays)[:2]
    return math.prod(x) * math.prod(w[1:])


def _einsum(arrays: Arrays, at: dict[str, Any]) -> tuple[float, float]:
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


def _pairs(arrays: Arrays, at: dict[str, Any]) -> int:
    """Every box with every other."""
    boxes, scores = _shapes(arrays)[:2]
    most = arrays[2] if len(arrays) > 2 else None
    kept = boxes[1] if most is None else max(0, min(boxes[1], int(most.reshape(-1)[0])))
    return 32 * math.prod(scores[:2]) * boxes[1] * kept


def _window_sums(arrays: Arrays, at: dict[str, Any]) -> int:
    return math.prod(_shapes(arrays)[0]) * math.prod(at["kernel_shape"])


def _recurrent(arrays: Arrays, at: dict[str, Any]) -> int:
    x, w, r = _shapes(arrays)[:3]
    return x[0] * x[1] * (math.prod(w) + math.prod(r))


_PRODUCTS: dict[str, Callable[[Arrays, dict[str, Any]], float]] = {
    **dict.fromkeys(("MatMul", "MatMulInteger"), _matmul),
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv", "DeformConv"), _conv),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _window_sums),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    "QLinearMatMul": _quantized_matmul,
    "Gemm": _gemm,
    "ConvTranspose": _conv_transpose,
    "Einsum": lambda arrays, at: _einsum(arrays, at)[0],
    "NonMaxSuppression": _pairs,
}
