"""Nodes in topological order, as ONNX asks for. Some converters leave others, which ONNX Runtime takes."""

from __future__ import annotations

import onnx

from brickrt.graph.onnx_import.protobuf import bodies


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Puts nodes that read what later ones compute behind these, in the graph and in the bodies of its nodes; others
    stay in their order. Nodes in a circle stay as they are: the checker says so."""
    for node in graph.node:
        for body in bodies(node):
            sort_nodes(body)
    producers = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    edges = [(producers[name], k) for k, node in enumerate(graph.node) for name in _read(node) if name in producers]
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


def _read(node: onnx.NodeProto) -> set[str]:
    """Tensors that a node reads, those that its bodies do among them."""
    read = set(node.input)
    for body in bodies(node):
        own = {v.name for v in body.input} | {name for inner in body.node for name in inner.output}
        read |= {name for inner in body.node for name in _read(inner)} - own
        read |= {v.name for v in body.output} - own
    return read
