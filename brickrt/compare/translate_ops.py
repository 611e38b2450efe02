"""ONNX operators in terms of a `translate.Backend`: attributes and optional inputs, once for all libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brickrt.compare.translate import Array, Backend, Ints, TranslatedNode, Value, extents

Operator = Callable[[Backend, TranslatedNode, Sequence[Value]], Any]
OPERATORS: dict[str, Operator] = {}
_ELEMENTWISE = (
    "Abs Add Ceil Cos Div Erf Exp Floor Log Max Min Mul Neg Pow Reciprocal Relu Sigmoid Sin Sqrt Sub Tanh Where"
).split()


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
    return b.elementwise[node.kind](*_tensors(b, operands))


@_operator("Identity", "Dropout", "Cast")
def _same(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    """Casts between floating-point types are left out: everything is computed in one."""
    if node.kind == "Cast" and node.get("to") not in (1, 10, 11, 16):
        raise LookupError("no translation of Cast to other than floating-point types")
    return operands[0]


@_operator("LeakyRelu")
def _leaky_relu(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    return b.elementwise["Max"](x, x * node.get("alpha", 0.01))


@_operator("Clip")
def _clip(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    for k, (name, bound) in enumerate((("min", "Max"), ("max", "Min")), 1):
        limit = _given(operands, k)
        limit = node.get(name) if limit is None else limit
        if limit is not None:
            x = b.elementwise[bound](x, _like(b, np.asarray(limit), x))
    return x


@_operator("HardSigmoid", "HardSwish")
def _hard(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    swish = node.kind == "HardSwish"
    alpha, beta = (1 / 6, 0.5) if swish else (node.get("alpha", 0.2), node.get("beta", 0.5))
    one = b.constant(np.asarray(1.0, np.float32), x)
    gate = b.elementwise["Min"](b.elementwise["Relu"](x * alpha + beta), one)
    return x * gate if swish else gate


@_operator("Gelu")
def _gelu(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    if node.get("approximate", "none") == "tanh":
        return 0.5 * x * (1 + b.elementwise["Tanh"](0.7978845608028654 * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + b.elementwise["Erf"](x * 0.7071067811865476))


# ---- windows


def _pads(node: TranslatedNode, extents: Ints, kernel: Ints, strides: Ints, dilations: Ints) -> list[tuple[int, int]]:
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


def _window(node: TranslatedNode, kernel: Ints) -> tuple[Ints, Ints]:
    ones = [1] * len(kernel)
    return node.get("strides") or ones, node.get("dilations") or ones


def _padded(b: Backend, x: Array, pads: Sequence[tuple[int, int]], value: float = 0.0) -> Array:
    return b.pad(x, [(0, 0), (0, 0), *pads], "constant", value) if any(map(any, pads)) else x


@_operator("Conv")
def _conv(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, w = operands[:2]
    kernel = extents(w)[2:]
    strides, dilations = _window(node, kernel)
    pads = _pads(node, extents(x)[2:], kernel, strides, dilations)
    return b.conv(_padded(b, x, pads), w, _given(operands, 2), strides, dilations, node.get("group", 1))


@_operator("ConvTranspose")
def _conv_transpose(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, w = operands[:2]
    kernel = extents(w)[2:]
    strides, dilations = _window(node, kernel)
    if node.get("auto_pad", "NOTSET") != "NOTSET" or node.get("output_shape"):
        raise LookupError("no translation of ConvTranspose with auto_pad or output_shape")
    pads = _pads(node, extents(x)[2:], kernel, strides, dilations)
    extra = node.get("output_padding") or [0] * len(kernel)
    y = b.conv_transpose(x, w, None, strides, dilations, node.get("group", 1))
    y = _padded(b, y, [(0, e) for e in extra])
    for axis, ((before, after), extent) in enumerate(zip(pads, extents(y)[2:], strict=True), 2):
        y = b.take(y, np.arange(before, extent - after), axis)
    bias = _given(operands, 2)
    return y if bias is None else y + b.reshape(bias, (1, -1, *(1,) * len(kernel)))


@_operator("MaxPool", "AveragePool")
def _pool(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, kernel = operands[0], node.get("kernel_shape")
    strides, dilations = _window(node, kernel)
    if node.get("ceil_mode") or len([name for name in node.outputs if name]) > 1:
        raise LookupError(f"no translation of {node.kind} with ceil_mode or indices")
    pads = _pads(node, extents(x)[2:], kernel, strides, dilations)
    if node.kind == "MaxPool":
        return b.pool("max", _padded(b, x, pads, float("-inf")), kernel, strides, dilations)
    y = b.pool("average", _padded(b, x, pads), kernel, strides, dilations)
    if any(map(any, pads)) and not node.get("count_include_pad", 0):
        ones = b.constant(np.ones((1, 1, *extents(x)[2:]), np.float32), x)
        y = y / b.pool("average", _padded(b, ones, pads), kernel, strides, dilations)
    return y


@_operator("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    return b.reduce("mean" if "Average" in node.kind else "max", x, range(2, x.ndim), True)


# ---- norms, reductions, products


@_operator("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
def _reduce(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    axes = _ints(node, "axes", operands, 1) or list(range(x.ndim))
    return b.reduce(node.kind[6:].lower(), x, [a % x.ndim for a in axes], bool(node.get("keepdims", 1)))


@_operator("Softmax")
def _softmax(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.softmax(operands[0], node.get("axis", -1))


def _normalized(b: Backend, x: Array, axes: Ints, epsilon: float) -> Array:
    centred = x - b.reduce("mean", x, axes, True)
    return centred / b.elementwise["Sqrt"](b.reduce("mean", centred * centred, axes, True) + epsilon)


@_operator("LayerNormalization")
def _layer_norm(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, scale, bias = operands[0], operands[1], _given(operands, 2)
    rank = x.ndim
    y = _normalized(b, x, range(node.get("axis", -1) % rank, rank), node.get("epsilon", 1e-5)) * scale
    return y if bias is None else y + bias


@_operator("InstanceNormalization")
def _instance_norm(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, scale, bias = operands
    column = (1, -1, *(1,) * (x.ndim - 2))
    y = _normalized(b, x, range(2, x.ndim), node.get("epsilon", 1e-5))
    return y * b.reshape(scale, column) + b.reshape(bias, column)


@_operator("BatchNormalization")
def _batch_norm(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, scale, bias, mean, variance = operands
    column = (1, -1, *(1,) * (x.ndim - 2))
    factor = scale / b.elementwise["Sqrt"](variance + node.get("epsilon", 1e-5))
    return x * b.reshape(factor, column) + b.reshape(bias - mean * factor, column)


@_operator("MatMul")
def _matmul(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.matmul(*_tensors(b, operands))


@_operator("Gemm")
def _gemm(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, w, c = operands[0], operands[1], _given(operands, 2)
    x = b.transpose(x, (1, 0)) if node.get("transA", 0) else x
    w = b.transpose(w, (1, 0)) if node.get("transB", 0) else w
    y = b.matmul(x, w) * node.get("alpha", 1.0)
    return y if c is None else y + c * node.get("beta", 1.0)


# ---- moves


@_operator("Reshape")
def _reshape(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    shape = [extents(x)[k] if e == 0 else int(e) for k, e in enumerate(operands[1].tolist())]
    return b.reshape(x, shape)


@_operator("Flatten")
def _flatten(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, axis = operands[0], node.get("axis", 1)
    return b.reshape(x, (int(np.prod(extents(x)[:axis])), -1))


@_operator("Squeeze", "Unsqueeze")
def _squeeze(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x, axes = operands[0], _ints(node, "axes", operands, 1)
    if node.kind == "Squeeze":
        dropped = [a % x.ndim for a in axes] if axes else [a for a, e in enumerate(extents(x)) if e == 1]
        return b.reshape(x, [e for a, e in enumerate(extents(x)) if a not in dropped])
    rank = x.ndim + len(axes or ())
    kept = iter(extents(x))
    return b.reshape(x, [1 if a in {v % rank for v in axes or ()} else next(kept) for a in range(rank)])


@_operator("Transpose")
def _transpose(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.transpose(operands[0], node.get("perm") or range(operands[0].ndim)[::-1])


@_operator("Concat")
def _concat(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    return b.concat(_tensors(b, operands), node.get("axis"))


@_operator("Expand")
def _expand(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    return b.expand(x, np.broadcast_shapes(extents(x), tuple(operands[1].tolist())))


@_operator("Tile")
def _tile(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    x = operands[0]
    for axis, repeats in enumerate(operands[1].tolist()):
        x = b.concat([x] * repeats, axis) if repeats > 1 else x
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
    return b.reshape(taken, (*extents(x)[:axis], *indices.shape, *extents(x)[axis + 1 :]))


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
        x = b.reshape(x, (n, c, h // edge, edge, w // edge, edge))
        return b.reshape(b.transpose(x, (0, 3, 5, 1, 2, 4)), (n, c * edge * edge, h // edge, w // edge))
    if node.get("mode", "DCR") == "DCR":
        x = b.transpose(b.reshape(x, (n, edge, edge, c // edge**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = b.transpose(b.reshape(x, (n, c // edge**2, edge, edge, h, w)), (0, 1, 4, 2, 5, 3))
    return b.reshape(x, (n, c // edge**2, h * edge, w * edge))


@_operator("Resize", "Upsample")
def _resize(b: Backend, node: TranslatedNode, operands: Sequence[Value]) -> Array:
    """Nearest neighbours by whole factors, which is what upsampling in networks mostly is."""
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
