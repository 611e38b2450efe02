"""What a brick of a subgraph touches: planning needs it of several layers, whoever reads a plan of each alone too."""

from __future__ import annotations

from brickrt.graph.ir import Graph
from brickrt.plan.geometry.halo import middle_boxes, needed_boxes, working_set
from brickrt.plan.subgraph import Subgraph


def footprint(graph: Graph, subgraph: Subgraph) -> int:
    """Bytes of tensors that one brick touches, constants aside."""
    if subgraph.footprint_bytes is not None:
        return subgraph.footprint_bytes
    output = middle_boxes(graph.out(graph.nodes[subgraph.nodes[-1]]).shape, [subgraph.brick])
    return int(working_set(graph, needed_boxes(graph, subgraph.nodes, output))[0])


def with_footprint(graph: Graph, subgraph: Subgraph) -> dict[str, object]:
    """The fields of a subgraph by name, as JSON has them; its footprint is counted."""
    return subgraph.to_dict() | {"footprint_bytes": footprint(graph, subgraph)}
