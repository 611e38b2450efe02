"""Stages: the parts of a model that are specialized and run one after the other.

A stage is a graph of brick operators followed by nodes that run on the host. Nodes that depend on the results of these,
or on values that the graph computes, are the rest: the next stage, specialized once its inputs are known.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from brickrt.graph.builder import OnnxNode
from brickrt.graph.host.run_host_node import reads
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import SourceGraph

FEW_OPERATIONS = 1 << 18
"""Operations that take less time than it does to run a program at all."""


@dataclass(frozen=True, eq=False)
class Stage:
    """Nodes of the model in topological order, by ONNX names.

    `inputs` are computed before the stage or given; `value_inputs` are those of them whose values must be known to
    specialize it. `outputs` are the model's outputs that the stage and what follows it compute.
    `deciding` are inputs whose values may be asked for where other values follow from them. A stage that is `repeated`
    runs many times, as the body of a loop does: of its `changing` inputs, and of what follows from them, only flags
    decide what is compiled.
    """

    source: SourceGraph
    nodes: tuple[OnnxNode, ...]
    inputs: tuple[str, ...]
    value_inputs: frozenset[str]
    outputs: tuple[str, ...]
    constants: dict[str, np.ndarray]
    deciding: frozenset[str] = frozenset()
    changing: frozenset[str] = frozenset()
    repeated: bool = False


@dataclass(frozen=True, eq=False)
class Specialized:
    """What a stage becomes with concrete types.

    Run `graph`; add `known` and, for each (name, other) of `same`, the value of `other` under `name`; then run
    `host_nodes` in order; then specialize and run `rest`. Where `need_values` is not empty, nothing else is filled in:
    specialize again with the values of these stage inputs. Of them, `deciding` only save a stage of its own to what
    follows from them.
    """

    graph: Graph
    host_nodes: tuple[OnnxNode, ...] = ()
    host_reasons: dict[str, str] = field(default_factory=dict)
    known: dict[str, np.ndarray] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    rest: Stage | None = None
    need_values: frozenset[str] = frozenset()
    deciding: frozenset[str] = frozenset()


def first_stage(source: SourceGraph, overridden: Iterable[str] = ()) -> Stage:
    """The whole model. `overridden` are the optional inputs that are given instead of their defaults."""
    given = frozenset(overridden)
    constants = {name: array for name, array in source.initializers.items() if name not in given}
    inputs = (*source.inputs, *(name for name in source.optional if name in given))
    return Stage(source, source.nodes, inputs, frozenset(), tuple(source.outputs), constants)


def with_deciding_inputs(stage: Stage) -> Stage:
    """The same, of which the values of all inputs may be asked for that decide others."""
    return replace(stage, deciding=frozenset(stage.inputs))


def only(values: Mapping[str, np.ndarray], names: Iterable[str]) -> dict[str, np.ndarray]:
    """The values of these names, as far as there are any."""
    return {name: values[name] for name in names if name in values}


def named_outputs(
    names: Iterable[str], resolve: Callable[[str], str], inputs: Container[str]
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Outputs of the graph for these names, of which `resolve` tells the tensors that they stand for; the names that
    stand for another output or for one of the `inputs`, and tensors of the graph to be renamed."""
    outputs: list[str] = []
    same: dict[str, str] = {}
    renamed: dict[str, str] = {}
    for name in sorted(names, key=lambda n: resolve(n) != n):
        tensor = resolve(name)
        if tensor in inputs or tensor in outputs or tensor in renamed:
            if tensor != name:
                same[name] = renamed.get(tensor, tensor)
            continue
        if tensor != name:
            renamed[tensor] = name
        outputs.append(name)
    return outputs, same, renamed


def after_host_nodes(nodes: Sequence[OnnxNode], host: Sequence[OnnxNode]) -> frozenset[str]:
    """The names of nodes that no node on the host waits for, so that one program may run them behind these; none where
    a node on the host is not among `nodes`."""
    producers = {name: node for node in nodes for name in node.outputs if name}
    before = {node.name for node in host}
    if not before.issubset(node.name for node in nodes):
        return frozenset()
    todo = [name for node in host for name in reads(node)]
    while todo:
        node = producers.get(todo.pop())
        if node is not None and node.name not in before:
            before.add(node.name)
            todo += reads(node)
    return frozenset(node.name for node in nodes if node.name not in before)


def is_little(graph: Graph) -> bool:
    """Whether a graph computes something, but so little that it should be part of another program."""
    work = sum(node.op.flops(graph.ins(node), graph.out(node)) for node in graph.nodes)
    return bool(graph.nodes) and work <= FEW_OPERATIONS
