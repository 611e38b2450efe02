"""The subgraph of a node, such as the body of a loop, as a stage of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import onnx

from brickrt.graph.builder import OnnxNode
from brickrt.graph.onnx_import.protobuf import graph_parts, outer_names
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.specialize.stages import Stage


def body_stage(
    node: OnnxNode,
    graph: onnx.GraphProto,
    source: SourceGraph,
    known: Mapping[str, np.ndarray],
    changing: Collection[str],
    repeated: bool,
) -> Stage | None:
    """The stage of a subgraph of `node`, whose nodes are named after it. None where a name means two tensors.

    `known` are its own inputs, and tensors of the outer scope, that are constants; `changing` are inputs that are
    others in each round. What else it reads of the outer scope are inputs too, and decide what is compiled where they
    are small.
    """
    nodes, constants = graph_parts(graph, {**source.opsets, node.domain: node.version})
    own = [v.name for v in graph.input]
    captured = outer_names(graph)
    written = {*constants, *(name for n in nodes for name in n.outputs if name)}
    if written.intersection((*own, *captured)):
        return None
    inputs = tuple(name for name in (*own, *captured) if name not in known)
    return Stage(
        source=source,
        nodes=tuple(replace(n, name=f"{node.name}/{n.name}") for n in nodes),
        inputs=inputs,
        value_inputs=frozenset(),
        outputs=tuple(dict.fromkeys(v.name for v in graph.output)),
        constants=constants | {name: known[name] for name in (*own, *captured) if name in known},
        deciding=frozenset(inputs) - frozenset(changing),
        changing=frozenset(changing),
        repeated=repeated,
    )


def passed_through(graph: onnx.GraphProto) -> dict[str, str]:
    """For each output of a subgraph that is one of its inputs as it is, the name of that."""
    same = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Identity" and n.domain in ("", "ai.onnx")}
    own, found = {v.name for v in graph.input}, {}
    for output in graph.output:
        name = output.name
        while name in same and name not in own:
            name = same[name]
        if name in own:
            found[output.name] = name
    return found
