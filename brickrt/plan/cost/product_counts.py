"""The work of a product by the algorithm that computes it, in multiply-adds, and how fast a core can add them.

These are figures for limits, not for plans: what a kernel does besides (sums of Winograd's and Strassen's factors,
tiles that stick out, halos again) is left out, so no kernel can do with less.
"""

from __future__ import annotations

import math

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.cpu.amx.sizes import BYTES as TILES_OF_BYTES
from brickrt.ops.cpu.amx.sizes import PAIRS as TILES_OF_PAIRS
from brickrt.ops.cpu.amx.sizes import factors_of
from brickrt.ops.cpu.paired.pairing import LEFT
from brickrt.ops.cpu.winograd.axes import Axis, axes_of
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Shape
from brickrt.plan.cost.conv_algorithms import EDGES, live_taps
from brickrt.plan.cost.strassen import LEVELS, PAIRED
from brickrt.plan.cost.tile_products import TILES, tile_ratio
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.options import Precision

WORD_PRODUCTS = 2  # products of 16 bits that an instruction adds in each lane, where there is none for bytes
BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


def peak_work(graph: Graph, node: Node, algorithm: str | None) -> float:
    """The work of a node's product by a named algorithm, None for the direct one, in multiply-adds at the peak of its
    type (`peak_ratio`): as many as the algorithm takes, but of float32 in tile registers as many as vectors do in the
    time in which tiles multiply the parts. 0 for nodes that multiply nothing. Taps of a direct convolution that fall
    on padding are not counted."""
    op, ins, out = node.op, graph.ins(node), graph.out(node)
    if isinstance(op, MatMul):
        direct = float(out.size * ins[0].shape[-1])
    elif isinstance(op, Conv | ConvTranspose):
        if algorithm in EDGES:
            assert isinstance(op, Conv)
            return _winograd(op, ins[0].shape, out.shape, EDGES[algorithm])
        direct = _direct(op, ins[0].shape, ins[1].shape, out.shape)
    else:
        return 0.0
    if algorithm == PAIRED:
        return direct * LEFT
    if algorithm == TILES and ins[0].dtype == np.float32:
        return direct / tile_ratio(factors_of(op, ins[0].dtype, ins[1].dtype))
    return direct * (7 / 8) ** LEVELS.get(algorithm or "", 0)


def peak_ratio(dtype: np.dtype, device: DeviceSpec, precision: Precision) -> float:
    """How many times more operations a core can do at most on products of elements of a type than on float32's."""
    if dtype in BYTES:
        return max(device.byte_products, WORD_PRODUCTS, tile_ratio(TILES_OF_BYTES) if device.tiles else 0)
    if device.kind == "cpu" and dtype.name == "bfloat16":
        return max(device.bfloat16_products, tile_ratio(TILES_OF_PAIRS) if device.tiles else 0)
    kind = "tf32" if dtype == np.float32 and precision == "tf32" else dtype.name
    peak = device.peak_gflops_per_core
    return max(1.0, device.matrix_gflops_per_core.get(kind, peak) / peak)


def _direct(op: Conv | ConvTranspose, x: Shape, weights: Shape, out: Shape) -> float:
    """Pairs of an element that is read and one that is written, along all axes, times the channels of both."""
    near, far = (out, x) if isinstance(op, Conv) else (x, out)  # which one steps by strides, and which is stepped on
    sides = zip(near[2:], far[2:], op.kernel, op.strides, op.dilations, op.pads, strict=True)
    pairs = math.prod(int(live_taps(*side).sum()) for side in sides)
    parts = op.gate_parts if isinstance(op, Conv) else 1
    return float(near[0] * near[1] * weights[1] * pairs * parts)


def _winograd(op: Conv, x: Shape, out: Shape, edge: int) -> float:
    swept, *tiled = axes_of(op, x[2:], edge)
    rows = live_taps(_outputs(out, swept), swept.extent, swept.r, swept.stride, swept.dilation, swept.pad)
    products = [_outputs(out, axis) / axis.m * axis.products for axis in tiled]  # per channel of input and output
    return float(x[0] * x[1] * out[1] * int(rows.sum()) * np.prod(products))


def _outputs(out: Shape, axis: Axis) -> int:
    """Outputs along an axis; 1 along one that the tensors do not have."""
    return 1 if axis.dim is None else out[axis.dim]
