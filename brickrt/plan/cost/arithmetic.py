"""How long a node's arithmetic takes one core, computed directly: without Winograd's or Strassen's algorithm."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import Op
from brickrt.ops.definitions.elementwise_functions import FUNCTIONS
from brickrt.ops.expr import Apply, Expr, walk
from brickrt.ops.operators.chains.pixel_chain import PixelChain
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.gather_rows import GatherRows
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Reorder, Take, Transpose, View
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.recurrence import BATCH, Recurrence
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.types import TensorType
from brickrt.plan.cost.constants import (
    DIVIDE_OPERATIONS,
    ELEMENTWISE_OPERATIONS,
    MOVE_OPERATIONS,
    RECURRENT_ROWS,
    RECURRENT_SHARE,
    SLOW_OPERATIONS,
)
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.options import Precision

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_PACES = {"quick": 1.0, "divide": DIVIDE_OPERATIONS, "slow": SLOW_OPERATIONS}
_COSTS = {name: _PACES[function.pace] for name, function in FUNCTIONS.items()}


def arithmetic_us(graph: Graph, node: Node, device: DeviceSpec, precision: Precision) -> float:
    """Modelled microseconds of one core."""
    return _op_us(node.op, graph.ins(node), graph.out(node), device, precision)


def _op_us(op: Op, ins: Sequence[TensorType], out: TensorType, device: DeviceSpec, precision: Precision) -> float:
    """Those of an operator with inputs and output of these types."""
    elementwise = _elementwise(device)
    if isinstance(op, Product):
        return _product_us(op, ins, out, device, precision) + epilogue_us(out.size, op.epilogue, device)
    if isinstance(op, PixelChain):
        found = op.types(ins)
        links = zip(op.links, found[op.inputs :], strict=True)
        return sum(_op_us(link.op, [found[k] for k in link.reads], t, device, precision) for link, t in links)
    if isinstance(op, Map):
        return out.size * _operations(op.expr) / elementwise
    if isinstance(op, Reduce):
        return (ins[0].size * (1 + _operations(op.pre)) + out.size * _operations(op.post)) / elementwise
    if isinstance(op, Rowwise):
        sweeps = sum(1 + _operations(step.pre) for step in op.steps)
        return out.size * (sweeps + _operations(op.kept) + _operations(op.expr)) / elementwise
    if isinstance(op, Recurrence):
        peak = 1e3 * device.peak_gflops_per_core * RECURRENT_SHARE * min(1.0, out.shape[BATCH] / RECURRENT_ROWS)
        return op.flops(ins, out) / peak + out.size * sum(map(_operations, op.expressions)) / elementwise
    if isinstance(op, View):
        return 0.0
    if isinstance(op, Take | Concat | Transpose | Reorder | GatherRows):
        return out.size * MOVE_OPERATIONS / elementwise
    return op.flops(ins, out) / elementwise


def product_only_us(graph: Graph, node: Node, device: DeviceSpec, precision: Precision = "fp32") -> float:
    """The same of a convolution or matrix product without what follows its sums."""
    return _product_us(node.op, graph.ins(node), graph.out(node), device, precision)


def _product_us(op: Op, ins: Sequence[TensorType], out: TensorType, device: DeviceSpec, precision: Precision) -> float:
    peak = 1e3 * product_gflops(op, ins[0].dtype, device, precision) * _efficiency(op, ins[1].shape, device)
    return op.flops(ins, out) / peak


def epilogue_us(elements: float, epilogue: Expr | None, device: DeviceSpec) -> float:
    """The same of what follows a product, for so many elements."""
    return elements * _operations(epilogue) / _elementwise(device)


def _elementwise(device: DeviceSpec) -> float:
    """Operations of elementwise kernels in a microsecond of one core."""
    slower = ELEMENTWISE_OPERATIONS / 2 if device.double_pumped else ELEMENTWISE_OPERATIONS
    return device.peak_gflops_per_core * 1e3 / slower


def product_gflops(op: Op, dtype: np.dtype, device: DeviceSpec, precision: Precision) -> float:
    """Peak of one core for products; groups leave matrix units with too little to do."""
    kind = "tf32" if dtype == np.float32 and precision == "tf32" else dtype.name
    grouped = isinstance(op, Conv | ConvTranspose) and op.groups > 1
    peak = device.peak_gflops_per_core
    if dtype == np.uint8:
        return peak if grouped else peak * device.byte_products
    if device.kind == "cpu" and dtype == BFLOAT16:
        return peak if grouped else peak * device.bfloat16_products
    return peak if grouped else device.matrix_gflops_per_core.get(kind, peak)


def _operations(expr: Expr | None) -> float:
    """Vector operations per element that an expression takes as long as."""
    return 0.0 if expr is None else sum(_COSTS.get(e.fn, 1.0) for e in walk(expr) if isinstance(e, Apply))


def _efficiency(op: Op, weights: Sequence[int], device: DeviceSpec) -> float:
    """Share of the multiply-add peak that kernels reach, measured."""
    if isinstance(op, MatMul):
        return 0.85
    if isinstance(op, ConvTranspose):
        return 0.7
    if isinstance(op, Conv) and op.groups > 1:
        return 0.8 if device.double_pumped else 0.5 if weights[1] == 1 else 0.6 if weights[1] < device.lanes else 0.75
    if device.double_pumped:
        return 0.95 if weights[1] > 4 else 0.85
    return 0.75 if weights[1] > 4 else 0.4
