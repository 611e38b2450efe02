"""Subgraphs of plans as JSON, and back. A text may hold anything: what is no plan of the graph is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from brickrt.ops.types import Shape
from brickrt.plan.options import SubgraphStrategy
from brickrt.plan.plan import Plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.cache.parse_json import is_count, is_figure, parse_json

STRATEGIES = get_args(SubgraphStrategy)
_KINDS = get_type_hints(Subgraph)
_NAMES = {field.name for field in fields(Subgraph)}


def encode(subgraphs: tuple[Subgraph, ...]) -> bytes:
    """The text of subgraphs."""
    return json.dumps([subgraph.to_dict() for subgraph in subgraphs]).encode()


def decode(text: bytes) -> tuple[Subgraph, ...]:
    """The subgraphs of a text, each field of its type. Raises ValueError for any other text."""
    entries = parse_json(text)
    if not isinstance(entries, list):
        raise ValueError("no list of subgraphs")
    return tuple(_subgraph(entry) for entry in entries)


def _subgraph(entry: Any) -> Subgraph:
    if not isinstance(entry, dict) or entry.keys() != _NAMES:
        raise ValueError("a subgraph with other fields")
    return Subgraph(**{name: _field(name, value) for name, value in entry.items()})


def _field(name: str, value: Any) -> Any:
    """The value as the field has it: lists become tuples."""
    kind = _KINDS[name]
    if kind is float:
        right = is_figure(value)
    elif kind is int:
        right = is_count(value)
    elif kind is str:
        right = isinstance(value, str)
    elif kind is SubgraphStrategy:
        right = value in STRATEGIES
    elif name == "node_bricks":
        right = isinstance(value, list) and all(map(_are_counts, value))
        value = tuple(map(tuple, value)) if right else value
    else:
        right = _are_counts(value)
        value = tuple(value) if right else value
    if not right:
        raise ValueError(f"{name} of a subgraph: {value!r:.100}")
    return value


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_count, value))


def check(plan: Plan) -> Plan:
    """The plan, where each node of its graph runs once and bricks fit the tensors. Raises ValueError where not."""
    members = [k for subgraph in plan.subgraphs for k in subgraph.members]
    if sorted(members) != list(range(len(plan.graph.nodes))):
        raise ValueError("the subgraphs do not hold every node once")
    for number, subgraph in enumerate(plan.subgraphs):
        for fault in _faults(plan, subgraph):
            raise ValueError(f"subgraph {number}: {fault}")
    return plan.verify()


def _faults(plan: Plan, subgraph: Subgraph) -> Iterator[str]:
    nodes = subgraph.nodes
    if not nodes or list(nodes) != sorted(nodes) or len(nodes) != len(subgraph.node_bricks):
        yield "its nodes are not in order, or have no brick each"
        return
    if len(nodes) > 1 and subgraph.strategy == "layerwise":
        yield "several nodes, layerwise"
    if not set(subgraph.kernels) <= set(nodes):
        yield "kernels of other nodes"
    shapes = [plan.graph.out(plan.graph.nodes[k]).shape for k in nodes]
    if not all(map(_fits, subgraph.node_bricks, shapes)) or not _fits(subgraph.brick, shapes[-1]):
        yield "a brick that is empty or larger than its tensor"
    elif not _fits(subgraph.band, subgraph.brick):
        yield "a band that is empty or larger than the brick"
    elif subgraph.bricks != math.prod(-(-size // edge) for size, edge in zip(shapes[-1], subgraph.brick, strict=True)):
        yield "another number of bricks"


def _fits(brick: Shape, whole: Shape) -> bool:
    """Whether a brick has as many axes as a tensor, and along each at least one element and at most all."""
    return len(brick) == len(whole) and all(1 <= edge <= max(size, 1) for edge, size in zip(brick, whole, strict=True))
