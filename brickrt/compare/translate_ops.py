"""ONNX operators in terms of a `Backend`: attributes and optional inputs, once for all libraries."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brickrt.compare.backend import Array, Backend, Ints, Pads, SlidingWindow, TranslatedNode, Value, extents

Operator = Callable[[Backend, TranslatedNode, Sequence[Value]], Any]
OPERATORS: dict[str, Operator] = {}
_ELEMENTWISE = (
    "Abs Ceil Cos Erf Exp Floor HardSwish Log Max Min Neg Reciprocal Relu Sigmoid Sin Sqrt Tanh Where".split()
)
_ARITHMETIC = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.truediv, "Pow": operator.pow,
}  # fmt: skip


def _operator(*names: str) -> Callable[[Operator], Operator]:
    def register(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


def _given(operands: Sequence[Value], k: int) -> Value:
    return operands[k] if len(operands) > k else None


def _ints(node: TranslatedNode, name: str, operands: Sequence[Value], k: int) -> list[int] | None:
    """A setting that is an attribute in older operators and input `k` in later ones."""
    value = _given(operands, k) if node.get(name) is None else node.get(name)
    return None if value is None else [int(v) for v in np.asarray(value).reshape(-1)]


def _like(b: Backend, value: Value, like: Array) -> Array:
    return b.constant(value, like) if isinstance(value, np.ndarray) else value


def _tensors(b: Backend, operands: Sequence[Value]) -> list[Array]:
    """All operands as arrays of the library."""
    like = next(v for v in operands if v is not None and not isinstance(v, np.ndarray))
    return [_like(b, v, like) for v in operands]


@_operator(*_ELEMENTWISE)
def _elementwise(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.functions[node.kind](*_tensors(b, operands))


@_operator(*_ARITHMETIC)
def _arithmetic(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    """Scalars stay numbers of Python's: as tensors they would be sent to a GPU in every run."""
    scalars = [isinstance(v, np.ndarray) and v.ndim == 0 for v in operands]
    tensors = _tensors(b, [None if scalar else v for v, scalar in zip(operands, scalars, strict=True)])
    left, right = (v.item() if scalar else t for v, t, scalar in zip(operands, tensors, scalars, strict=True))
    return _ARITHMETIC[node.kind](left, right)


@_operator("Identity", "Dropout", "Cast")
def _same(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    """Casts between floating-point types are left out: everything is computed in one."""
    if node.kind == "Cast" and node.get("to") not in (1, 10, 11, 16):
        raise LookupError("no translation of Cast to other than floating-point types")
    return operands[0]


@_operator("LeakyRelu")
def _leaky_relu(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.functions["LeakyRelu"](operands[0], node.get("alpha", 0.01))


@_operator("Clip")
def _clip(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    limits = [node.get(name, _given(operands, k)) for k, name in enumerate(("min", "max"), 1)]
    return b.functions["Clip"](operands[0], *(None if limit is None else float(limit) for limit in limits))


@_operator("HardSigmoid")
def _hard_sigmoid(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.functions["Clip"](operands[0] * node.get("alpha", 0.2) + node.get("beta", 0.5), 0.0, 1.0)


@_operator("Gelu")
def _gelu(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.functions["Gelu"](operands[0], node.get("approximate", "none") == "tanh")


# ---- windows


def _window(node: TranslatedNode, x: Array, kernel: Ints) -> SlidingWindow:
    ones = [1] * len(kernel)
    strides, dilations = node.get("strides") or ones, node.get("dilations") or ones
    pads = _pads(node, extents(x)[2:], kernel, strides, dilations)
    return SlidingWindow(tuple(kernel), tuple(strides), tuple(dilations), tuple(pads))


def _pads(node: TranslatedNode, extents: Ints, kernel: Ints, strides: Ints, dilations: Ints) -> Pads:
    """Before and after each spatial dimension."""
    rank, how = len(kernel), node.get("auto_pad", "NOTSET")
    if how in ("NOTSET", "VALID"):
        given = node.get("pads") if how == "NOTSET" and node.get("pads") else [0] * 2 * rank
        return list(zip(given[:rank], given[rank:], strict=True))
    pairs = []
    for extent, k, s, d in zip(extents, kernel, strides, dilations, strict=True):
        total = max((-(-extent // s) - 1) * s + d * (k - 1) + 1 - extent, 0)
        less, more = total // 2, total - total // 2
        pairs.append((less, more) if how == "SAME_UPPER" else (more, less))
    return pairs


@_operator("Conv")
def _conv(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, w = operands[:2]
    return b.conv(x, w, _given(operands, 2), _window(node, x, extents(w)[2:]), node.get("group", 1))


@_operator("ConvTranspose")
def _conv_transpose(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    if node.get("auto_pad", "NOTSET") != "NOTSET" or node.get("output_shape"):
        raise LookupError("no translation of ConvTranspose with auto_pad or output_shape")
    x, w = operands[:2]
    kernel = extents(w)[2:]
    extra = node.get("output_padding") or [0] * len(kernel)
    return b.conv_transpose(x, w, _given(operands, 2), _window(node, x, kernel), node.get("group", 1), extra)


@_operator("MaxPool", "AveragePool")
def _pool(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    if node.get("ceil_mode") or len([name for name in node.outputs if name]) > 1:
        raise LookupError(f"no translation of {node.kind} with ceil_mode or indices")
    window = _window(node, operands[0], node.get("kernel_shape"))
    if node.kind == "MaxPool":
        return b.max_pool(operands[0], window)
    return b.average_pool(operands[0], window, bool(node.get("count_include_pad", 0)) or not window.padded)


@_operator("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    kind = "ReduceMean" if "Average" in node.kind else "ReduceMax"
    return b.functions[kind](x, axis=tuple(range(2, x.ndim)), keepdims=True)


# ---- norms, reductions, products


@_operator("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
def _reduce(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    axes = _ints(node, "axes", operands, 1) or list(range(x.ndim))
    return b.functions[node.kind](x, axis=tuple(a % x.ndim for a in axes), keepdims=bool(node.get("keepdims", 1)))


@_operator("Softmax")
def _softmax(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.functions["Softmax"](operands[0], node.get("axis", -1))


@_operator("LayerNormalization")
def _layer_norm(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, scale, bias = operands[0], operands[1], _given(operands, 2)
    return b.layer_norm(x, scale, bias, node.get("axis", -1) % x.ndim, node.get("epsilon", 1e-5))


@_operator("InstanceNormalization")
def _instance_norm(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, scale, bias = operands
    return b.instance_norm(x, scale, bias, node.get("epsilon", 1e-5))


@_operator("BatchNormalization")
def _batch_norm(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, scale, bias, mean, variance = operands
    return b.batch_norm(x, scale, bias, mean, variance, node.get("epsilon", 1e-5))


@_operator("MatMul")
def _matmul(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.functions["MatMul"](*_tensors(b, operands))


@_operator("Gemm")
def _gemm(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, w, c = operands[0], operands[1], _given(operands, 2)
    x = b.functions["Transpose"](x, (1, 0)) if node.get("transA", 0) else x
    w = b.functions["Transpose"](w, (1, 0)) if node.get("transB", 0) else w
    y = b.functions["MatMul"](x, w) * node.get("alpha", 1.0)
    return y if c is None else y + c * node.get("beta", 1.0)


# ---- moves


@_operator("Reshape")
def _reshape(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    shape = [extents(x)[k] if e == 0 else int(e) for k, e in enumerate(operands[1].tolist())]
    return b.functions["Reshape"](x, shape)


@_operator("Flatten")
def _flatten(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, axis = operands[0], node.get("axis", 1)
    return b.functions["Reshape"](x, (int(np.prod(extents(x)[:axis])), -1))


@_operator("Squeeze", "Unsqueeze")
def _squeeze(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, axes = operands[0], _ints(node, "axes", operands, 1)
    if node.kind == "Squeeze":
        dropped = [a % x.ndim for a in axes] if axes else [a for a, e in enumerate(extents(x)) if e == 1]
        return b.functions["Reshape"](x, [e for a, e in enumerate(extents(x)) if a not in dropped])
    rank = x.ndim + len(axes or ())
    kept = iter(extents(x))
    return b.functions["Reshape"](x, [1 if a in {v % rank for v in axes or ()} else next(kept) for a in range(rank)])


@_operator("Transpose")
def _transpose(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.functions["Transpose"](operands[0], node.get("perm") or range(operands[0].ndim)[::-1])


@_operator("Concat")
def _concat(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.functions["Concat"](_tensors(b, operands), node.get("axis"))


@_operator("Expand")
def _expand(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    return b.functions["Expand"](x, np.broadcast_shapes(extents(x), tuple(operands[1].tolist())))


@_operator("Tile")
def _tile(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    for axis, repeats in enumerate(operands[1].tolist()):
        x = b.functions["Concat"]([x] * repeats, axis) if repeats > 1 else x
    return x


@_operator("Split")
def _split(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> list[Array]:
    x, axis, n = operands[0], node.get("axis", 0), len(node.outputs)
    edge = -(-extents(x)[axis] // n)
    sizes = _ints(node, "split", operands, 1) or [min(edge, extents(x)[axis] - k * edge) for k in range(n)]
    ends = np.cumsum(sizes)
    return [b.take(x, np.arange(end - size, end), axis) for size, end in zip(sizes, ends, strict=True)]


@_operator("Slice")
def _slice(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    starts, ends = (_ints(node, name, operands, k) or [] for k, name in ((1, "starts"), (2, "ends")))
    axes = _ints(node, "axes", operands, 3) or list(range(len(starts)))
    steps = _ints(node, "steps", operands, 4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        kept = slice(start, None if step < 0 and end < -(2**31) else end, step)
        x = b.take(x, np.arange(extents(x)[axis])[kept], axis)
    return x


@_operator("Gather")
def _gather(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, indices, axis = operands[0], operands[1], node.get("axis", 0)
    axis %= x.ndim
    taken = b.take(x, indices.reshape(-1) % extents(x)[axis], axis)
    return b.functions["Reshape"](taken, (*extents(x)[:axis], *indices.shape, *extents(x)[axis + 1 :]))


@_operator("Pad")
def _pad(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, pads = operands[0], _ints(node, "pads", operands, 1) or []
    rank = x.ndim
    axes = [a % rank for a in _ints(node, "axes", operands, 3) or range(rank)]
    pairs = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    value = _given(operands, 2)
    value = node.get("value", 0.0) if value is None else float(np.asarray(value))
    return b.pad(x, [pairs.get(a, (0, 0)) for a in range(rank)], node.get("mode", "constant"), value)


@_operator("DepthToSpace", "SpaceToDepth")
def _shuffle(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, edge = operands[0], node.get("blocksize")
    n, c, h, w = extents(x)
    if node.kind == "SpaceToDepth":
        x = b.functions["Reshape"](x, (n, c, h // edge, edge, w // edge, edge))
        return b.functions["Reshape"](
            b.functions["Transpose"](x, (0, 3, 5, 1, 2, 4)), (n, c * edge * edge, h // edge, w // edge)
        )
    if node.get("mode", "DCR") == "DCR":
        x = b.functions["Transpose"](b.functions["Reshape"](x, (n, edge, edge, c // edge**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = b.functions["Transpose"](b.functions["Reshape"](x, (n, c // edge**2, edge, edge, h, w)), (0, 1, 4, 2, 5, 3))
    return b.functions["Reshape"](x, (n, c // edge**2, h * edge, w * edge))


@_operator("Resize", "Upsample")
def _resize(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    """Nearest neighbours by whole factors only, which is how most networks upsample."""
    x = operands[0]
    scales = (
        node.get("scales")
        if len(operands) == 1
        else operands[1 if node.kind == "Upsample" else min(2, len(operands) - 1)]
    )
    sizes = _given(operands, 3)
    factors = np.asarray(sizes) / np.asarray(extents(x)) if sizes is not None else np.asarray(scales, np.float64)
    if node.get("mode", "nearest") != "nearest" or (factors != np.round(factors)).any():
        raise LookupError("no translation of Resize but to nearest neighbours by whole factors")
    for axis, factor in enumerate(factors.astype(int).tolist()):
        if factor > 1:
            x = b.take(x, np.repeat(np.arange(extents(x)[axis]), factor), axis)
    return x


OPERATORS["Shape"] = _same  # never called: shapes are known on the host
