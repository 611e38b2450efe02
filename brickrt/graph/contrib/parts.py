"""What the bodies of several families have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper

from brickrt.graph.contrib.body import ContributedBody

WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "ceil_mode", "count_include_pad")
"""Attributes of convolutions and pools that mean the same in standard operators."""


def dequantized(b: ContributedBody, x: int, scale: int, zero: int, axis: int = 1) -> str:
    """Input `x` as floats, by the inputs that are its scale and, if there is one, its zero point."""
    given = [b.input(k) for k in (x, scale, zero)]
    return b.add("DequantizeLinear", *(given if given[2] else given[:2]), axis=axis)


def quantized(b: ContributedBody, x: str, scale: int, zero: int, like: int) -> str:
    """Floats as integers, by the inputs that are scale and, if there is one, zero point; without one they have the
    type of input `like`."""
    if b.input(zero):
        return b.add("QuantizeLinear", x, b.input(scale), b.input(zero))
    return b.add("QuantizeLinear", x, b.input(scale), output_dtype=type_code(b.type(like).dtype))


def type_code(dtype: np.dtype) -> int:
    """ONNX's number of an element type."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def channels_first(b: ContributedBody, x: str, rank: int, last: bool) -> str:
    """A tensor whose channels are innermost, if `last` says so, with them behind the batch."""
    return b.add("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)]) if last else x


def channels_last(b: ContributedBody, x: str, rank: int, last: bool) -> str:
    """The way back from `channels_first`."""
    return b.add("Transpose", x, perm=[0, *range(2, rank), 1]) if last else x


def activated(b: ContributedBody, x: str, kind: str, given: Sequence[float]) -> str:
    """The activation that a fused node names, with its parameters in their order; '' is none. Raises ValueError for
    one that no fused node has."""
    if not kind:
        return x
    if kind not in ACTIVATIONS:
        raise ValueError(f"activation {kind} is none of {', '.join(ACTIVATIONS)}")
    if kind == "Clip":
        return b.add("Clip", x, *(b.number(value, 0) for value in given))
    return b.add(kind, x, **dict(zip(ACTIVATIONS[kind], (float(v) for v in given))))


ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Softplus": (),
    "Softsign": (),
    "Clip": ("min", "max"),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}
"""The activations of fused nodes, and what their parameters are."""
