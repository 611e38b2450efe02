"""Runs ONNX nodes on the host, in NumPy, by ONNX's own reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import onnx

from brickrt.graph.allowance import hold
from brickrt.graph.builder import OnnxNode
from brickrt.graph.errors import BrickError, Interrupted, described
from brickrt.graph.host.node_arrays import memory_of
from brickrt.graph.host.quick import quick_outputs
from brickrt.graph.onnx_import.element_types import element_type
from brickrt.graph.onnx_import.protobuf import outer_names
from brickrt.graph.room import own_bytes

if TYPE_CHECKING:
    from brickrt.graph.host.evaluator import HostEvaluator

Value = Any
"""An array, a list of values (an ONNX sequence), a dict (a map), or None (an absent optional)."""

RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
)

_evaluators: WeakKeyDictionary[OnnxNode, dict[tuple, HostEvaluator]] = WeakKeyDictionary()


def run_node(node: OnnxNode, opsets: Mapping[str, int], arrays: Mapping[str, Value]) -> list[Value]:
    """The outputs of one node, in its order; None for one that it does not name.

    `arrays` has at least the node's inputs and what its subgraphs capture. Raises BrickError, naming the node.
    """
    quick = quick_outputs(node, arrays)
    if quick is not None:
        hold(sum(value.nbytes for value in quick))
        return quick
    feeds = {name: arrays[name] for name in reads(node)}
    wanted = [name for name in node.outputs if name]
    types = tuple(element_type(value) for value in feeds.values())
    made = _evaluators.setdefault(node, {})
    try:
        if types not in made:
            # here: ONNX's reference takes longer to import than the rest of brickrt, and few models need it
            from brickrt.graph.host.evaluator import node_evaluator

            versions = {**opsets, node.domain: node.version}
            made[types] = node_evaluator(node.proto, versions, dict(zip(feeds, types, strict=True)))
        results = dict(zip(wanted, made[types].run(wanted, feeds), strict=True))
    except (BrickError, Interrupted):
        raise
    except Exception as e:  # the reference raises whatever NumPy does: all are faults of this node and these values
        described = [f"'{name}' {_describe(value)}" for name, value in feeds.items()]
        given = ", ".join(described[:6]) + (f" and {len(described) - 6} more" if len(described) > 6 else "")
        raise BrickError(f"{node.op_type} node '{node.name}' fails on the host for {given}: {_cause(e)}") from e
    values = [_array(results[name]) if name else None for name in node.outputs]
    read = [value for value in feeds.values() if isinstance(value, np.ndarray)]
    hold(sum(memory_of(value) for value in values if isinstance(value, np.ndarray) and own_bytes(value, read)))
    return values


_READS: WeakKeyDictionary[OnnxNode, tuple[str, ...]] = WeakKeyDictionary()  # of nodes, which each size asks for


def reads(node: OnnxNode) -> tuple[str, ...]:
    """The tensors a node reads, itself or in its subgraphs, each once."""
    found = _READS.get(node)
    if found is None:
        _READS[node] = found = tuple(dict.fromkeys(name for name in (*node.inputs, *captured(node)) if name))
    return found


def captured(node: OnnxNode) -> tuple[str, ...]:
    """The tensors of the outer scope that a node's subgraphs read."""
    return tuple(dict.fromkeys(name for graph in subgraphs(node) for name in outer_names(graph)))


def subgraphs(node: OnnxNode) -> tuple[onnx.GraphProto, ...]:
    """The graphs among the attributes of a node, such as the branches of an If."""
    return tuple(value for value in node.attrs.values() if isinstance(value, onnx.GraphProto))


def deterministic(node: OnnxNode) -> bool:
    """Whether the same inputs always give the same outputs."""
    training = node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] != ""
    inner = any(n.op_type in RANDOM for graph in subgraphs(node) for n in graph.node)
    return node.op_type not in RANDOM and not training and not inner


def _array(value: Value) -> Value:
    """NumPy scalars, which the reference sometimes returns, as arrays."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def _describe(value: Value) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}[{','.join(map(str, value.shape))}]"
    return f"a {type(value).__name__}" if value is not None else "nothing"


def _cause(error: BaseException) -> str:
    """The message of the innermost error: the reference wraps it in its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    return described(error)
