"""A layer graph run by the NumPy definitions of its operators: what every engine's results are compared with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import evaluate_whole


def interpret(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The graph's outputs by name."""
    values = run_nodes(graph.nodes, {**graph.constants, **inputs})
    return {name: values[name] for name in graph.outputs}


def run_nodes(nodes: tuple[Node, ...] | list[Node], values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`values` and the outputs of the nodes, all by name."""
    known = dict(values)
    for node in nodes:
        known[node.output] = evaluate_whole(node.op, [known[name] for name in node.inputs])
    return known
