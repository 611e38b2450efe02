"""Convolutions whose taps lie at offsets of their own (DeformConv): their columns, and a 1×1 convolution of these."""

from __future__ import annotations

import math

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, elementwise, optional, positive, transpose, view, wide
from brickrt.graph.builders.scalar import add
from brickrt.graph.builders.spatial.convolution import groups_of, plain_conv
from brickrt.graph.builders.spatial.sampling import FLOATS
from brickrt.graph.builders.spatial.window import WindowAttributes, of_weights, window_of
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import Expr
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.sampling.deformed_columns import DeformedColumns
from brickrt.ops.operators.sampling.grid_sample import MOST_AXES, has_kernel_size
from brickrt.ops.types import TensorType


@builds("DeformConv")
def deform_conv(b: Builder, node: OnnxNode) -> str:
    """float32 and float16 images of two or three axes, whose channels all outputs read."""
    kind, weights = map(b.type, node.inputs[:2])
    axes = kind.rank - 2
    sized = axes in range(2, MOST_AXES + 1) and has_kernel_size(kind.shape[2:])
    if not b.cpu_operators or kind.dtype not in FLOATS or not sized or groups_of(node) != 1:
        raise Unsupported("taps at offsets have kernels on CPUs, in float32 and float16, for one group of channels")
    window = window_of(node, kind.shape[2:], of_weights(node, weights.shape[2:]))
    x, filters, offsets, bias, factors = (wide(b, name) if name else "" for name in _operands(node))
    groups = positive(node, "offset_group") if "offset_group" in node.attrs else 1
    outputs = plain_conv(b, node, *node.inputs[:2]).infer((kind, weights))
    points = _points(b, window, groups, offsets, outputs)
    found = b.emit(DeformedColumns(math.prod(window.kernel)), x, points, *([factors] if factors else []))
    ones, zeros = (1,) * axes, (0,) * axes
    turned = transpose(b, filters, (0, *range(2, 2 + axes), 1))
    rows = view(b, turned, (weights.shape[0], b.type(found).shape[1], *ones))
    product = Conv(ones, ones, ones, zeros, zeros, 1, bias=bool(bias))
    return convert(b, b.emit(product, found, rows, *([bias] if bias else [])), kind.dtype)


def _operands(node: OnnxNode) -> list[str]:
    """Image, filters, offsets, bias and factors, the last two or none."""
    return [*node.inputs[:3], optional(node, 3), optional(node, 4)]


def _points(b: Builder, window: WindowAttributes, groups: int, offsets: str, outputs: TensorType) -> str:
    """Where each tap of each output lies: its place in the window, moved by its offset."""
    kind, axes = b.type(offsets), len(window.kernel)
    wanted = (outputs.shape[0], groups * math.prod(window.kernel) * axes, *outputs.shape[2:])
    if kind.shape != wanted:
        raise ValueError(f"offsets {kind} must have the shape {list(wanted)}, a coordinate of each tap for each axis")
    lines = [_line(window, axis, kind.shape[2 + axis]) for axis in range(axes)]
    return elementwise(b, _sum, offsets, *(b.constant(np.tile(line, (1, groups, *(1,) * axes))) for line in lines))


def _line(window: WindowAttributes, axis: int, outputs: int) -> np.ndarray:
    """Where along an axis the taps of so many outputs lie, and 0 for the other axes' coordinates: float32
    [1, taps · axes, 1…, outputs, …1]."""
    axes = len(window.kernel)
    tap = np.indices(window.kernel)[axis].reshape(-1) * window.dilations[axis]
    first = np.arange(outputs) * window.strides[axis] - window.pads[axis]
    found = np.zeros((len(tap), axes, outputs), np.float32)
    found[:, axis] = tap[:, None] + first
    return found.reshape(1, -1, *(outputs if k == axis else 1 for k in range(axes)))


def _sum(*operands: Expr) -> Expr:
    total = operands[0]
    for operand in operands[1:]:
        total = add(total, operand)
    return total
