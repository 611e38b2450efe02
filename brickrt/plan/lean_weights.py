"""Plans for little memory: which layers keep algorithms that read transformed weights, which take more than others."""

from __future__ import annotations

from collections.abc import Mapping

from brickrt.plan.cost.conv_algorithms import constant_bytes, holds, layer_us, possible_algorithms, weights_again_us
from brickrt.plan.cost.packed_weights import held_weights_bytes, packed_bytes
from brickrt.plan.cost.strassen import HELD
from brickrt.plan.plan import Plan, plan_subgraphs, with_subgraphs

ASSUMED_BANDS = 16  # of which each transforms weights anew where they are transformed while a layer runs


def transformed_bytes(plan: Plan) -> int:
    """The bytes that transformed weights take beyond the weights themselves, those that a worker holds among them."""
    return sum(_added(plan).values()) + held_weights_bytes(plan.graph, plan.algorithms)


def with_transforms(plan: Plan, most: int) -> Plan:
    """The plan of the same graph, whose transformed weights take at most so many bytes beyond the weights: those of the
    layers that they save most time for a byte. The others are computed from weights as the model has them: by other
    algorithms, so that bits change. No worker holds transformed weights."""
    graph, added = plan.graph, _added(plan)
    constants = constant_bytes(graph)
    others = {k: _lightest(plan, k, constants) for k in added}
    saved = {
        k: us - layer_us(graph, graph.nodes[k], plan.device, plan.algorithms[k], constants)
        for k, (us, _) in others.items()
    }
    algorithms = {k: name.replace(HELD, "") for k, name in plan.algorithms.items()}
    left = most
    for k in sorted(added, key=lambda k: -saved[k] / added[k]):
        if added[k] <= left:
            left -= added[k]
        elif (name := others[k][1]) is not None:
            algorithms[k] = name
        else:
            del algorithms[k]
    return with_subgraphs(plan, plan_subgraphs(plan, algorithms=algorithms))


def _added(plan: Plan) -> Mapping[int, int]:
    """By node, the bytes that its weights take beyond themselves, where they take more."""
    graph, lanes = plan.graph, plan.device.lanes
    nodes = {k: graph.nodes[k] for k in plan.algorithms}
    grown = {
        k: packed_bytes(graph, node, plan.algorithms[k], lanes) - graph.types[node.inputs[1]].nbytes
        for k, node in nodes.items()
        if node.inputs[1] in graph.constants
    }
    return {k: nbytes for k, nbytes in grown.items() if nbytes > 0}


def _lightest(plan: Plan, k: int, constants: int) -> tuple[float, str | None]:
    """The microseconds and the name of the fastest algorithm that reads a node's weights as the model has them; the
    direct one has no name."""
    graph, node = plan.graph, plan.graph.nodes[k]
    times: dict[str | None, float] = {None: layer_us(graph, node, plan.device, None, constants)}
    for name in _that_keep(plan, k, constants):
        again = weights_again_us(graph, node, plan.device, name)
        times[name] = layer_us(graph, node, plan.device, name, constants) + (ASSUMED_BANDS - 1) * again
    best = min(times, key=times.__getitem__)
    return times[best], best


def _that_keep(plan: Plan, k: int, constants: int) -> list[str]:
    """The algorithms of a node whose weights take no more than themselves."""
    graph, node = plan.graph, plan.graph.nodes[k]
    weights = graph.types[node.inputs[1]].nbytes
    names = possible_algorithms(graph, plan.layouts, plan.device, k, constants)
    names = [name for name in names if not holds(name)]
    return [name for name in names if packed_bytes(graph, node, name, plan.device.lanes) <= weights]
