"""The layers of random networks: each takes a `Draft` and one of its tensors, and appends nodes that suit its shape.

A layer that cannot take such a tensor returns None and appends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.support.random_draft import Draft

Layer = Callable[[Draft, str], str | None]

UNARY = [
    "Relu",
    "LeakyRelu",
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "HardSigmoid",
    "Elu",
    "Selu",
    "Softplus",
    "Softsign",
    "Mish",
    "Gelu",
    "Erf",
    "Abs",
    "Neg",
    "Sin",
]
COORDINATES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]


def conv(d: Draft, x: str) -> str | None:
    _, c, *space = d.shape(x)
    groups = d.random.choice([1, 1, 1, c, *(g for g in range(2, c) if c % g == 0)])
    channels = groups * d.random.choice([1, 2, 3]) if groups > 1 else d.random.randint(1, 40)
    kernel = _window(d, space)
    weight = d.weight(channels, c // groups, *kernel, fan_in=c // groups * math.prod(kernel))
    bias = [d.weight(channels)] if d.random.random() < 0.5 else []
    return d.node("Conv", x, weight, *bias, group=groups, **_steps_and_pads(d, space, kernel))


def dense_conv(d: Draft, x: str) -> str | None:
    """As most are: 3 wide (or 1), stride 1, extents kept; in enough channels for every kernel to be tried."""
    _, c, *space = d.shape(x)
    k, channels = d.random.choice([1, 3, 3]), d.random.choice([8, 16, 17, 32, 48])
    weight = d.weight(channels, c, *(k,) * len(space), fan_in=c * k ** len(space))
    y = d.node("Conv", x, weight, d.weight(channels), pads=(k // 2,) * 2 * len(space))
    return d.node("Relu", y) if d.random.random() < 0.6 else y


def separable(d: Draft, x: str) -> str | None:
    _, c, *space = d.shape(x)
    k, s = d.random.choice([3, 5]), d.random.choice([1, 1, 2])
    rank = len(space)
    y = d.node(
        "Conv", x, d.weight(c, 1, *(k,) * rank, fan_in=k**rank), group=c, strides=(s,) * rank, pads=(k // 2,) * 2 * rank
    )
    y = d.node("HardSwish", y)
    return d.node("Conv", y, d.weight(d.random.randint(4, 33), c, *(1,) * rank, fan_in=c))


def conv_transpose(d: Draft, x: str) -> str | None:
    _, c, *space = d.shape(x)
    groups = d.random.choice([1, 1, c])
    kernel = tuple(d.random.randint(1, 4) for _ in space)
    strides = tuple(d.random.randint(1, 3) for _ in space)
    weight = d.weight(c, d.random.randint(1, 12) if groups == 1 else 1, *kernel, fan_in=c // groups * math.prod(kernel))
    extra = tuple(d.random.randrange(s) for s in strides)
    pads = tuple(d.random.randrange(k) for k in kernel * 2)
    spans = zip(space, kernel, strides, pads, pads[len(space) :], extra)
    if any(not 0 < (i - 1) * s + k - p - q + e < 70 for i, k, s, p, q, e in spans):
        return None
    return d.node("ConvTranspose", x, weight, group=groups, strides=strides, output_padding=extra, pads=pads)


def pool(d: Draft, x: str) -> str | None:
    _, _, *space = d.shape(x)
    kernel = _window(d, space)
    kind = d.random.choice(["MaxPool", "MaxPool", "AveragePool", "LpPool"])
    steps = _steps(d, space, kernel)
    if kind == "AveragePool":
        steps |= {"count_include_pad": d.random.randrange(2)}
    if kind == "LpPool":
        steps |= {"p": d.random.choice([1, 2])}
        return d.node(kind, x, kernel_shape=kernel, **steps)
    # Padding beyond half a window would put windows wholly outside; so would rounding up, without room for it.
    pads = tuple(d.random.randint(0, (k - 1) // 2) for k in kernel * 2)
    up = all(s + k // 2 <= f * (k - 1) for s, f, k in zip(steps["strides"], steps["dilations"], kernel, strict=True))
    return d.node(kind, x, kernel_shape=kernel, ceil_mode=int(up and d.random.random() < 0.5), pads=pads, **steps)


def gate(d: Draft, x: str) -> str | None:
    """x · sigmoid of what a reduction of it says, as squeeze-and-excitation."""
    _, c, *space = d.shape(x)
    mean = d.node(d.random.choice(["GlobalAveragePool", "GlobalMaxPool"]), x)
    y = d.node("Conv", mean, d.weight(c, c, *(1,) * len(space), fan_in=c))
    return d.node("Mul", x, d.node(d.random.choice(["Sigmoid", "HardSigmoid"]), y))


def modulation(d: Draft, x: str) -> str | None:
    """Scaled and shifted by two halves of what is computed from its means."""
    _, c, *space = d.shape(x)
    y = d.node("Conv", d.node("GlobalAveragePool", x), d.weight(2 * c, c, *(1,) * len(space), fan_in=c))
    scale, shift = d.nodes("Split", 2, y, axis=1, num_outputs=2)
    return d.node("Add", d.node("Mul", x, scale), shift)


def one_factor(d: Draft, x: str) -> str | None:
    """Times a number without dimensions."""
    return d.node("Mul", x, d.node("ReduceMax", x, keepdims=0))


def reduction(d: Draft, x: str) -> str | None:
    rank = len(d.shape(x))
    axes = sorted(d.random.sample(range(rank), d.random.randint(1, 2)))
    kind = d.random.choice(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"])
    y = d.node(kind, x, d.ints(*axes), keepdims=1)
    return d.node("Add", x, d.node("Tanh", y))


def unary(d: Draft, x: str) -> str | None:
    return d.node(d.random.choice(UNARY), x)


def clip(d: Draft, x: str) -> str | None:
    return d.node("Clip", x, d.scalar(-0.5), d.scalar(1.5))


def prelu(d: Draft, x: str) -> str | None:
    _, c, *space = d.shape(x)
    return d.node("PRelu", x, d.weight(c, *(1,) * len(space)))


def silu(d: Draft, x: str) -> str | None:
    return d.node("Mul", x, d.node("Sigmoid", x))


def hard_swish_written_out(d: Draft, x: str) -> str | None:
    y = d.node("Clip", d.node("Add", x, d.scalar(3.0)), d.scalar(0.0), d.scalar(6.0))
    return d.node("Div", d.node("Mul", x, y), d.scalar(6.0))


def batch_norm(d: Draft, x: str) -> str | None:
    c = d.shape(x)[1]
    return d.node("BatchNormalization", x, d.weight(c), d.weight(c), d.weight(c), d.positive(c))


def norm(d: Draft, x: str) -> str | None:
    _, c, *space = d.shape(x)
    if math.prod(space) < 4:
        return None
    kind = d.random.choice(["InstanceNormalization", "GroupNormalization", "LayerNormalization", "LRN"])
    if kind == "LRN":
        if len(space) != 2:
            return None
        return d.node(kind, x, size=d.random.choice([1, 3, 5]))
    if kind == "LayerNormalization":
        axis = d.random.randint(2, len(space) + 1)
        if math.prod(d.shape(x)[axis:]) < 4:
            return None
        return d.node(kind, x, d.weight(*d.shape(x)[axis:]), axis=axis, epsilon=1e-2)
    if kind == "GroupNormalization":
        groups = d.random.choice([g for g in range(1, c + 1) if c % g == 0])
        # Shape inference knows nothing of this kind.
        y = d.node(kind, x, d.weight(c), d.weight(c), num_groups=groups, epsilon=1e-2)
        d.types[y] = d.types[x]
        return y
    return d.node(kind, x, d.weight(c), d.weight(c), epsilon=1e-2)


def channel_layer_norm(d: Draft, x: str) -> str | None:
    rank, c = len(d.shape(x)), d.shape(x)[1]
    there, back = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
    if c < 4:
        return None
    y = d.node("LayerNormalization", d.node("Transpose", x, perm=there), d.weight(c), d.weight(c), epsilon=1e-2)
    return d.node("Transpose", y, perm=back)


def softmax(d: Draft, x: str) -> str | None:
    rank = len(d.shape(x))
    return d.node(d.random.choice(["Softmax", "LogSoftmax"]), x, axis=d.random.randint(-rank, rank - 1))


def combine(d: Draft, x: str) -> str | None:
    """With another tensor of its shape (a residual), or a constant that is broadcast."""
    shape = d.shape(x)
    same = [t for t in d.tensors if d.shape(t) == shape and t != x]
    if same and d.random.random() < 0.7:
        other = d.random.choice(same)
    else:
        other = d.weight(*(e if d.random.random() < 0.5 else 1 for e in shape[d.random.randrange(len(shape)) :]))
    pair = [x, other] if d.random.random() < 0.7 else [other, x]
    return d.node(d.random.choice(["Add", "Add", "Mul", "Sub", "Max", "Min"]), *pair)


def concat(d: Draft, x: str) -> str | None:
    shape = d.shape(x)
    axis = d.random.randrange(1, len(shape))
    fits = [t for t in d.tensors if _without(d.shape(t), axis) == _without(shape, axis)]
    parts = [x, *(d.random.choice(fits) for _ in range(d.random.randint(1, 2)))]
    if sum(d.shape(t)[axis] for t in parts) > 80:
        return None
    d.random.shuffle(parts)
    return d.node("Concat", *parts, axis=axis)


def split_gate(d: Draft, x: str) -> str | None:
    shape = d.shape(x)
    axes = [a for a in range(1, len(shape)) if shape[a] % 2 == 0]
    if not axes:
        return None
    axis = d.random.choice(axes)
    a, b = d.nodes("Split", 2, x, axis=axis, num_outputs=2)
    return d.node(d.random.choice(["Mul", "Add", "Max"]), a, b)


def uneven_split(d: Draft, x: str) -> str | None:
    c = d.shape(x)[1]
    if c < 3:
        return None
    low = d.random.randint(1, c - 1)
    parts = d.nodes("Split", 2, x, d.ints(low, c - low), axis=1)
    d.tensors.append(parts[1])
    return parts[0]


def slices(d: Draft, x: str) -> str | None:
    shape = d.shape(x)
    axis = d.random.randrange(1, len(shape))
    start, step = d.random.randrange(shape[axis]), d.random.choice([1, 1, 2, 3, -1, -2])
    end = shape[axis] if step > 0 else -shape[axis] - 1
    return d.node("Slice", x, d.ints(start), d.ints(end), d.ints(axis), d.ints(step))


def pad(d: Draft, x: str) -> str | None:
    _, _, *space = d.shape(x)
    mode = d.random.choice(["constant", "reflect", "edge", "wrap"])
    most = [min(3, e - 1 if mode in ("reflect", "wrap") else 3) for e in space]
    least = [-min(1, e - 1) // 2 if mode == "constant" else 0 for e in space]
    sides = [[d.random.randint(a, b) for a, b in zip(least, most)] for _ in range(2)]
    value = [d.scalar(0.25)] if mode == "constant" and d.random.random() < 0.5 else []
    return d.node("Pad", x, d.ints(0, 0, *sides[0], 0, 0, *sides[1]), *value, mode=mode)


def resize(d: Draft, x: str) -> str | None:
    n, c, *space = d.shape(x)
    mode = d.random.choice(["nearest", "linear", "cubic"] if len(space) == 2 else ["nearest", "linear"])
    how = {"mode": mode, "coordinate_transformation_mode": d.random.choice(COORDINATES)}
    if mode == "nearest":
        how = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if mode != "nearest" and d.random.random() < 0.5:
        sizes = [d.random.randint(1, min(2 * e, 60)) for e in space]
        return d.node("Resize", x, "", "", d.ints(n, c, *sizes), **how)
    if max(space) > 30 or how["coordinate_transformation_mode"] == "align_corners":
        return None  # ONNX Runtime rounds the extents before it takes their ratio, ONNX does not
    scales = [d.random.choice([1.0, 2.0, 2.0, 3.0, 0.5] if mode == "nearest" else [2.0, 1.5, 0.75]) for _ in space]
    if any(int(e * s) < 1 for e, s in zip(space, scales)):
        return None
    return d.node("Resize", x, "", d.floats(1.0, 1.0, *scales), **how)


def blocks(d: Draft, x: str) -> str | None:
    shape = d.shape(x)
    if len(shape) != 4:
        return None
    if shape[1] % 4 == 0:
        return d.node("DepthToSpace", x, blocksize=2, mode=d.random.choice(["DCR", "CRD"]))
    if shape[2] % 2 == 0 and shape[3] % 2 == 0:
        return d.node("SpaceToDepth", x, blocksize=2)
    return None


def transpose(d: Draft, x: str) -> str | None:
    space = list(range(2, len(d.shape(x))))
    d.random.shuffle(space)
    return d.node("Transpose", x, perm=[0, 1, *space])


def shuffle_channels(d: Draft, x: str) -> str | None:
    n, c, *space = d.shape(x)
    groups = [g for g in range(2, c) if c % g == 0]
    if not groups:
        return None
    g = d.random.choice(groups)
    y = d.node("Reshape", x, d.ints(n, g, c // g, *space))
    y = d.node("Transpose", y, perm=[0, 2, 1, *range(3, 3 + len(space))])
    return d.node("Reshape", y, d.ints(n, c, *space))


def attention(d: Draft, x: str) -> str | None:
    """Every pixel looks at all others."""
    n, c, *space = d.shape(x)
    pixels = math.prod(space)
    if pixels > 500:
        return None
    rows = d.node("Transpose", d.node("Reshape", x, d.ints(n, c, pixels)), perm=[0, 2, 1])
    q, k, v = (d.node("MatMul", rows, d.weight(c, c, fan_in=c)) for _ in range(3))
    scores = d.node("MatMul", q, d.node("Transpose", k, perm=[0, 2, 1]))
    looks = d.node("Softmax", d.node("Mul", scores, d.scalar(1 / math.sqrt(c))), axis=-1)
    y = d.node("Transpose", d.node("MatMul", looks, v), perm=[0, 2, 1])
    return d.node("Reshape", y, d.ints(n, c, *space))


def matmul(d: Draft, x: str) -> str | None:
    last = d.shape(x)[-1]
    return d.node("MatMul", x, d.weight(last, d.random.randint(1, 40), fan_in=last))


def where(d: Draft, x: str) -> str | None:
    return d.node("Where", d.node("Greater", x, d.scalar(0.1)), d.node("Mul", x, d.scalar(0.5)), d.node("Sub", x, x))


def double(d: Draft, x: str) -> str | None:
    y = d.node("Mul", d.node("Cast", x, to=11), d.node("Cast", x, to=11))
    return d.node("Cast", d.node("Sqrt", y), to=1)


LAYERS: list[Layer] = [
    conv, conv, conv, dense_conv, dense_conv, dense_conv, separable, conv_transpose, pool, pool, gate, reduction, unary,
    unary, clip, prelu, silu, hard_swish_written_out, batch_norm, norm, channel_layer_norm, softmax, combine, combine,
    combine, concat, concat, modulation, one_factor, split_gate, uneven_split, slices, pad, resize, blocks, transpose,
    shuffle_channels, attention, matmul, where, double,
]  # fmt: skip


def _window(d: Draft, space: list[int]) -> tuple[int, ...]:
    return tuple(d.random.randint(1, min(5, e)) for e in space)


def _steps(d: Draft, space: list[int], kernel: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Strides, and dilations that the extents have room for."""
    wide = tuple(
        d.random.choice([f for f in (1, 1, 2, 3) if f * (k - 1) < e]) for e, k in zip(space, kernel, strict=True)
    )
    return {"strides": tuple(d.random.choice([1, 1, 2, 3]) for _ in space), "dilations": wide}


def _steps_and_pads(d: Draft, space: list[int], kernel: tuple[int, ...]) -> dict[str, Any]:
    """ONNX Runtime knows no automatic padding of dilated windows."""
    steps: dict[str, Any] = dict(_steps(d, space, kernel))
    if d.random.random() < 0.2 and max(steps["dilations"]) == 1:
        return steps | {"auto_pad": d.random.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])}
    return steps | {"pads": tuple(d.random.randint(0, k // 2 + 1) for k in kernel * 2)}


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
