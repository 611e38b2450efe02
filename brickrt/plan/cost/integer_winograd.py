"""Where Winograd's algorithm computes convolutions of quantized integers, exactly (`ops/cpu/winograd/integers/`).

It multiplies a quarter as often as direct kernels do. Where no instruction multiplies bytes these multiply 16 bits, as
it does. Where one does (VNNI), they multiply twice as many at a time: there the tuner may take it: it was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from brickrt.graph.ir import Graph, Node
from brickrt.ops.cpu.winograd.axes import fits, known_axes
from brickrt.ops.cpu.winograd.integers.limits import EDGE, has_integer_tiles, sums_are_small
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.product_types import is_integer_product
from brickrt.plan.cost.strassen import INTEGERS
from brickrt.plan.device.device_spec import DeviceSpec

INTEGER_WINOGRAD = f"winograd{EDGE}{INTEGERS}"


def may_transform_integers(graph: Graph, layouts: Mapping[str, str], node: Node, device: DeviceSpec) -> bool:
    """Whether it can compute a node: one whose weights are known, and so small that its sums are."""
    op = node.op
    return (
        not device.tiles
        and isinstance(op, Conv)
        and is_integer_product(*graph.ins(node)[:2])
        and fits(op, EDGE)
        and has_integer_tiles(known_axes(op, graph.ins(node)[0].shape[2:], EDGE))
        and layouts[node.inputs[0]] == layouts[node.output] == "blocked"
        and all(name in graph.constants for name in node.inputs[1 : 2 + op.bias])
        and graph.out(node).size > 0
        and sums_are_small(graph.constants[node.inputs[1]])
    )


def transforms_integers(graph: Graph, layouts: Mapping[str, str], node: Node, device: DeviceSpec) -> bool:
    """Whether a plan that nobody tuned takes it where it is modelled faster."""
    return device.byte_products == 1 and may_transform_integers(graph, layouts, node, device)
