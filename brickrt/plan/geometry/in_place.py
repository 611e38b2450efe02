"""Products of fused bricks that read their first factor in place, in shared memory, and how that lies there.

Such a factor is not copied to buffers once more, if tensor cores multiply it: threads of CUDA cores have too many rows
of it to keep where each lies. Its pixels, or rows, are then an odd number of 16-byte pieces apart: the same piece of
eight of them in a row lies in different banks, and is loaded at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.cuda.products.block_tile import on_warps
from brickrt.ops.cuda.products.depthwise import suits_depthwise
from brickrt.ops.cuda.shared_memory import FUSED, FUSED_IN_PLACE
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.move import Take
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise

PIECE = 16  # bytes that are loaded together
BUFFER = 64  # bytes of the depth that the smallest buffers have; these must follow one another
ROW_BYTES = 8  # that reductions keep of an element of a row, at most


def read_in_place(graph: Graph, layouts: Mapping[str, str], nodes: Sequence[int], precision: str) -> dict[int, str]:
    """The products among the nodes of a fused subgraph that read their first factor in place, and its name."""
    made = {graph.nodes[k].output for k in nodes if not isinstance(graph.nodes[k].op, Take)}
    return {
        k: graph.nodes[k].inputs[0]
        for k in products(graph, nodes)
        if graph.nodes[k].inputs[0] in made and _follow(graph, layouts, graph.nodes[k], precision)
    }


def products(graph: Graph, nodes: Sequence[int]) -> Iterator[int]:
    """Those of the nodes that are computed as products of tiles."""
    for k in nodes:
        op, ins = graph.nodes[k].op, graph.ins(graph.nodes[k])
        depthwise = isinstance(op, Conv) and suits_depthwise(op, ins[0].shape[1], graph.out(graph.nodes[k]).shape[1])
        if isinstance(op, Product) and not depthwise:
            yield k


def _follow(graph: Graph, layouts: Mapping[str, str], node: Node, precision: str) -> bool:
    """Whether tensor cores multiply, and what a row sums, at a tap, follows one another in as many bytes as whole
    buffers."""
    name, op = node.inputs[0], node.op
    kind = graph.types[name]
    images = isinstance(op, Conv | ConvTranspose)
    if not on_warps(kind.dtype, precision) or layouts[name] != ("last" if images else "plain"):
        return False
    if isinstance(op, Conv | ConvTranspose):
        return op.groups == 1 and kind.shape[1] * kind.dtype.itemsize % BUFFER == 0
    return kind.shape[-1] * kind.dtype.itemsize % BUFFER == 0


def kept_bytes(graph: Graph, layouts: Mapping[str, str], nodes: Sequence[int], precision: str) -> int:
    """Bytes that the device functions of a fused subgraph take at most beside the intermediates."""
    in_place = read_in_place(graph, layouts, nodes, precision)
    few = in_place.keys() == set(products(graph, nodes)) and not any(_long(graph, graph.nodes[k]) for k in nodes)
    return FUSED_IN_PLACE if few else FUSED


def _long(graph: Graph, node: Node) -> bool:
    """Whether a block may keep whole rows of a reduction in shared memory that are too long for the smaller room."""
    if not isinstance(node.op, Reduce | Rowwise):
        return False
    shape = graph.ins(node)[0].shape
    return ROW_BYTES * math.prod(shape[axis] for axis in node.op.axes) > FUSED_IN_PLACE


def stored_extents(extents: np.ndarray, layout: str, itemsize: int) -> np.ndarray:
    """The extents [n, rank] of boxes that are read in place with those that their innermost dimension is stored in."""
    axis = 1 if layout == "last" else -1
    inner = extents[:, axis]
    even = (inner * itemsize % PIECE == 0) & (inner * itemsize // PIECE % 2 == 0)
    stored = extents.copy()
    stored[:, axis] = inner + np.where(even, PIECE // itemsize, 0)
    return stored
