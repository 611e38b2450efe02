"""What nodes with constant inputs compute before the model runs. Nearly all are sums of shapes and the like, of which
an exported network has hundreds for each size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from brickrt.graph.builder import OnnxNode
from brickrt.graph.host.quick import QUICK_ELEMENTS, quick_outputs
from brickrt.graph.interpret import run_nodes
from brickrt.graph.ir import Node
from brickrt.graph.time_budget import TooLong, folding
from brickrt.ops.types import TensorType


def quick_constant(node: OnnxNode, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The outputs by name of an ONNX node with constant inputs, where NumPy gives them at once; else None."""
    quick = quick_outputs(node, arrays) if sum(array.size for array in arrays.values()) <= QUICK_ELEMENTS else None
    return None if quick is None else {name: value for name, value in zip(node.outputs, quick, strict=False) if name}


def folded(
    nodes: Sequence[Node], constants: Mapping[str, np.ndarray], types: Mapping[str, TensorType]
) -> dict[str, np.ndarray] | None:
    """What brick operators on constants compute, and the constants they read, by name; None where it takes too
    long."""
    made = {node.output for node in nodes}
    given = {name: constants[name] for node in nodes for name in node.inputs if name not in made}
    try:
        with folding(sum(types[name].size for name in (*given, *made))):
            return run_nodes(nodes, given)
    except TooLong:
        return None
