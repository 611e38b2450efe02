"""The bytes that weights take as kernels read them, by the algorithm of the layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

from brickrt.graph.ir import Graph, Node
from brickrt.ops.cpu.strassen.sizes import chunks_of, group_columns
from brickrt.plan.cost.conv_algorithms import added_bytes, held_bytes
from brickrt.plan.cost.strassen import F32_BYTES, PAIRED, column_dim, keeps_weights
from brickrt.plan.cost.tile_products import TILES


def packed_bytes(graph: Graph, node: Node, algorithm: str, lanes: int) -> int:
    """Bytes of a product's weights as they lie in memory for an algorithm, in vectors of so many lanes."""
    weights = graph.types[node.inputs[1]]
    if keeps_weights(algorithm):
        return weights.nbytes
    if algorithm == PAIRED:
        return max(weights.nbytes, _paired_bytes(graph, node, lanes))
    added = added_bytes(node.op, algorithm, weights)
    return weights.nbytes + added if algorithm == TILES else added


def held_weights_bytes(graph: Graph, algorithms: Mapping[int, str]) -> int:
    """Bytes of the held weights of a worker, the most that a layer of a graph with these algorithms has."""
    nodes = ((graph.nodes[k], name) for k, name in algorithms.items())
    return max((held_bytes(node.op, name, graph.types[node.inputs[1]]) for node, name in nodes), default=0)


def _paired_bytes(graph: Graph, node: Node, lanes: int) -> int:
    """Bytes of the weights of a product with paired elements, up to whole chunks and groups of columns, with what
    belongs to each column (`ops/cpu/paired/scheme.py`)."""
    weights, depth = graph.ins(node)[1], graph.ins(node)[0].shape[column_dim(node)]
    group = group_columns(lanes, 0)
    columns = -(-weights.size // depth // group) * group
    return columns * (math.prod(chunks_of(depth, lanes, 0)) * weights.dtype.itemsize + 2 * F32_BYTES) + F32_BYTES
