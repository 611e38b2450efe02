"""Graphs and models run by the NumPy definitions of their operators: slow, and what engines are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.interpret import run_nodes
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.check_inputs import check_inputs
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import Specialized, Stage, first_stage, only
from brickrt.ops.types import TensorType


def interpret(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The graph's outputs by name."""
    values = run_nodes(graph.nodes, {**graph.constants, **inputs})
    return {name: values[name] for name in graph.outputs}


def run_model(source: SourceGraph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The model's outputs by name."""
    values = check_inputs(source, inputs)
    stage: Stage | None = first_stage(source, [name for name in inputs if name in source.optional])
    while stage is not None:
        stage = run_stage(stage, values).rest
    return {name: values[name] for name in source.outputs}


def run_stage(stage: Stage, values: dict[str, Any]) -> Specialized:
    """Runs one stage on `values`, which takes up all it computes."""
    part = specialize_for(stage, values)
    values |= interpret(part.graph, only(values, part.graph.inputs))
    values |= part.known
    values |= {name: values[other] for name, other in part.same.items()}
    for node in part.host_nodes:
        results = run_node(node, stage.source.opsets, values)
        values |= {name: value for name, value in zip(node.outputs, results) if name}
    return part


def specialize_for(stage: Stage, values: Mapping[str, Any]) -> Specialized:
    """The stage specialized to the types of what `values` has, and to the values it asks for."""
    arrays = {name: a for name, a in only(values, stage.inputs).items() if isinstance(a, np.ndarray)}
    types = {name: TensorType(a.shape, a.dtype) for name, a in arrays.items()}
    needed = set(stage.value_inputs)
    part = specialize(stage, types, only(arrays, needed))
    while part.need_values:
        needed |= part.need_values
        part = specialize(stage, types, only(arrays, needed))
    return part
