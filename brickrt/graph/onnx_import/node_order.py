"""Nodes in topological order, as ONNX asks for. Some converters leave others, which ONNX Runtime takes."""

from __future__ import annotations

from itertools import chain

import onnx

from brickrt.graph.onnx_import.protobuf import bodies, outer_names


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Puts nodes that read what later ones compute behind these, in the graph and in the bodies of its nodes; others
    stay in their order. Nodes in a circle stay as they are: the checker says so."""
    inner = [bodies(node) for node in graph.node]
    for body in chain.from_iterable(inner):
        sort_nodes(body)
    producers = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    reads = [{*node.input, *chain.from_iterable(map(outer_names, own))} for node, own in zip(graph.node, inner)]
    edges = [(producers[name], k) for k, names in enumerate(reads) for name in names if name in producers]
    if all(producer < k for producer, k in edges):
        return
    import networkx  # takes a tenth of a second, which every model would pay for the few that are not in order

    order = networkx.DiGraph(edges)
    order.add_nodes_from(range(len(graph.node)))
    if networkx.is_directed_acyclic_graph(order):
        ordered = [graph.node[k] for k in networkx.lexicographical_topological_sort(order)]
        copies = onnx.GraphProto(node=ordered)
        graph.ClearField("node")
        graph.node.extend(copies.node)
