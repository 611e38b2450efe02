"""A graph as GPUs compute it: in a precision, and with the chains that tensor cores compute as one."""

from __future__ import annotations

from brickrt.graph.ir import Graph
from brickrt.graph.passes.chains.pixel_chains import pixel_chains
from brickrt.graph.passes.half_precision import to_half_precision


def gpu_graph(graph: Graph, precision: str) -> Graph:
    """The graph in a precision; operators on pixels that follow one another are one."""
    return pixel_chains(to_half_precision(graph, precision), precision == "tf32")
