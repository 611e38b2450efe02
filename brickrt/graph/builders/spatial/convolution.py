"""Convolutions."""

from __future__ import annotations

from dataclasses import replace

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, optional, positive, wide
from brickrt.graph.builders.integers.integer_products import integer_conv, integer_conv_transpose
from brickrt.graph.builders.spatial.window import (
    WindowAttributes,
    auto_pad,
    of_weights,
    per_dimension,
    split_pads,
    steps,
    window_of,
)
from brickrt.ops.operators.conv import Conv, ConvTranspose


@builds("Conv")
def conv(b: Builder, node: OnnxNode) -> str:
    """A convolution, computed in float32 for float16."""
    found = integer_conv(b, plain_conv(b, node, *node.inputs[:2]), *node.inputs[:3])
    return found or convert(b, convolved(b, node, *_operands(b, node)), b.type(node.inputs[0]).dtype)


def convolved(b: Builder, node: OnnxNode, x: str, weights: str, *bias: str) -> str:
    """A node's convolution, of other operands than the node has."""
    return b.emit(replace(plain_conv(b, node, x, weights), bias=bool(bias)), x, weights, *bias)


def plain_conv(b: Builder, node: OnnxNode, x: str, weights: str) -> Conv:
    """The operator of a node's convolution, without bias."""
    w = window_of(node, b.type(x).shape[2:], of_weights(node, b.type(weights).shape[2:]))
    return Conv(w.kernel, w.strides, w.dilations, w.pads, w.pads_end, groups_of(node))


@builds("ConvTranspose")
def conv_transpose(b: Builder, node: OnnxNode) -> str:
    """A transposed convolution, computed in float32 for float16."""
    kernel = of_weights(node, b.type(node.inputs[1]).shape[2:])
    w, extra = _transposed_window(node, b.type(node.inputs[0]).shape[2:], kernel)
    op = ConvTranspose(w.kernel, w.strides, w.dilations, w.pads, w.pads_end, extra, groups_of(node))
    found = integer_conv_transpose(b, op, *node.inputs[:3])
    if found:
        return found
    operands = _operands(b, node)
    product = b.emit(replace(op, bias=len(operands) == 3), *operands)
    return convert(b, product, b.type(node.inputs[0]).dtype)


def groups_of(node: OnnxNode) -> int:
    """The number of groups. Raises ValueError where it is below 1."""
    return positive(node, "group") if "group" in node.attrs else 1


def _operands(b: Builder, node: OnnxNode) -> list[str]:
    """Input, weights and, if there is one, the bias; float16 in float32."""
    names = [node.inputs[0], node.inputs[1], optional(node, 2)]
    return [wide(b, name) for name in names if name]


def _transposed_window(
    node: OnnxNode, spatial: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[WindowAttributes, tuple[int, ...]]:
    """The window and the output padding: pads follow from the output's shape where that is asked for."""
    rank = len(spatial)
    strides, dilations = steps(node, rank)
    extra = per_dimension(node, "output_padding", rank, 0)[:rank]
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        raise ValueError(f"output_padding {list(extra)} must be less than strides or dilations")
    mode, shape = auto_pad(node), node.attrs.get("output_shape")
    if not shape and not mode.startswith("SAME"):
        pads = per_dimension(node, "pads", 2 * rank, 0) if mode == "NOTSET" else (0,) * (2 * rank)
        return WindowAttributes(kernel, strides, dilations, pads[:rank], pads[rank:]), extra
    wanted = [int(d) for d in shape][-rank:] if shape else [d * s for d, s in zip(spatial, strides)]
    totals = [
        s * (d - 1) + e + (k - 1) * dilation + 1 - size
        for d, k, s, dilation, e, size in zip(spatial, kernel, strides, dilations, extra, wanted, strict=True)
    ]
    begin, end = split_pads(mode, [max(t, 0) for t in totals])
    # An output larger than the kernel reaches is longer at its end.
    return WindowAttributes(kernel, strides, dilations, begin, end), tuple(
        e + max(-t, 0) for e, t in zip(extra, totals)
    )
