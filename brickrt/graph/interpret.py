"""Runs nodes by the NumPy definitions of their operators, as folding does with constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from brickrt.graph.derived_constants import evaluated
from brickrt.graph.ir import Node


def run_nodes(nodes: Iterable[Node], values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`values` and the outputs of the nodes, all by name."""
    known = dict(values)
    for node in nodes:
        known[node.output] = evaluated(node.op, [known[name] for name in node.inputs])
    return known
