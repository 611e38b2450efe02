"""Subgraphs of plans as JSON, and back. A text may hold anything: what is no plan of the graph is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator

from brickrt.ops.types import Shape
from brickrt.plan.cost.conv_algorithms import (
    DIRECT,
    EXACT_ALGORITHMS,
    constant_bytes,
    keeps_algorithm,
    possible_algorithms,
)
from brickrt.plan.geometry.bricks import brick_count
from brickrt.plan.plan import Plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.cache.parse_json import parse_json, read_as


def encode(subgraphs: tuple[Subgraph, ...]) -> bytes:
    """The text of subgraphs."""
    return json.dumps([subgraph.to_dict() for subgraph in subgraphs]).encode()


def decode(text: bytes) -> tuple[Subgraph, ...]:
    """The subgraphs of a text, each field of its type. Raises ValueError for any other text."""
    return read_as(tuple[Subgraph, ...], parse_json(text), "a subgraph")


def check(plan: Plan) -> Plan:
    """The plan, where each node of its graph runs once and bricks fit the tensors. Raises ValueError where not."""
    members = [k for subgraph in plan.subgraphs for k in subgraph.members]
    if sorted(members) != list(range(len(plan.graph.nodes))):
        raise ValueError("the subgraphs do not hold every node once")
    constants = constant_bytes(plan.graph)
    for number, subgraph in enumerate(plan.subgraphs):
        for fault in (*_faults(plan, subgraph), *_strange_algorithms(plan, subgraph, constants)):
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
    elif subgraph.bricks != brick_count(shapes[-1], subgraph.brick):
        yield "another number of bricks"


def _strange_algorithms(plan: Plan, subgraph: Subgraph, constants: int) -> Iterator[str]:
    if len(subgraph.algorithms) not in (0, len(subgraph.nodes)):
        yield "its nodes have no algorithm each"
    for k, name in zip(subgraph.nodes, subgraph.algorithms, strict=False):
        if name != DIRECT:
            possible = possible_algorithms(plan.graph, plan.layouts, plan.device, k, constants)
            merged = len(subgraph.nodes) > 1 and not keeps_algorithm(plan.graph.nodes[k], name)
            inexact = plan.options.exact and name not in EXACT_ALGORITHMS
            if inexact or name not in possible or merged:
                yield f"node '{plan.graph.nodes[k].name}' is not computed by {name:.20}"


def _fits(brick: Shape, whole: Shape) -> bool:
    """Whether a brick has as many axes as a tensor, and along each at least one element and at most all."""
    return len(brick) == len(whole) and all(1 <= edge <= max(size, 1) for edge, size in zip(brick, whole, strict=True))
