"""How long a stream plan takes, by the model: what the network takes in core, and what bands, strips and passes add."""

from __future__ import annotations

from brickrt.plan.cost.conv_algorithms import weight_growth
from brickrt.plan.plan import Plan
from brickrt.plan.stream.band_storage import stored_bytes, with_extent
from brickrt.plan.stream.stream_plan import StreamPlan, Sweep

BAND_ROWS = 1.0  # rows in whose time a band begins and ends, about: workers wait for each other
COPY = 6.0  # bytes moved for each that a band saves and the next one restores: read, fetched and written, twice


def modelled_us(plan: StreamPlan) -> float:
    """Microseconds of a run."""
    in_core = sum(s.modelled_us for s in plan.plan.subgraphs)
    bandwidth = plan.plan.device.bandwidth["memory"] * 1e3  # bytes per microsecond
    moved = sum(_bands(one) * (_weights(plan, one) + COPY * _saved_bytes(plan.plan, one)) for one in plan.sweeps)
    return in_core * arithmetic(plan) * (1 + BAND_ROWS / plan.rows) + moved / bandwidth


def arithmetic(plan: StreamPlan) -> float:
    """Arithmetic of all sweeps, with the rows that merged layers and strips compute again, over that of the network."""
    graph = plan.plan.graph
    elements: dict[int, float] = {}
    for one in plan.sweeps:
        computed: dict[int, float] = {}
        for read in one.schedule.reads:
            computed[read.k] = max(computed.get(read.k, 0.0), read.output.elements * one.times / one.share)
        for k, volume in computed.items():
            elements[k] = elements.get(k, 0.0) + volume
    flops = {k: float(graph.node_flops[k]) for k in elements}
    again = sum(flops[k] * volume / max(1, graph.out(graph.nodes[k]).size) for k, volume in elements.items())
    return again / max(1.0, sum(flops.values()))


def _bands(one: Sweep) -> float:
    return one.schedule.bands * one.times / one.share


def _weights(plan: StreamPlan, one: Sweep) -> float:
    """Bytes of the constants that every band reads anew: between two bands other tensors take the caches."""
    graph, algorithms = plan.plan.graph, plan.plan.algorithms
    total = 0.0
    for k in (k for number in one.schedule.units for k in plan.units[number].members):
        node = graph.nodes[k]
        algorithm = algorithms.get(k)
        grown = weight_growth(node.op, algorithm, graph.types[node.inputs[1]].dtype) if algorithm else 1.0
        total += grown * sum(
            graph.constants[name].nbytes for name in dict.fromkeys(node.inputs) & graph.constants.keys()
        )
    return total


def _saved_bytes(plan: Plan, one: Sweep) -> int:
    """Bytes of the rows that a band saves for the next."""
    saved = {name: stored for name, stored in one.storage.tensors.items() if stored.kind == "saved"}
    graph, axes, lanes = plan.graph, one.schedule.axes, plan.device.lanes
    kept = {name: with_extent(stored.extents, axes.of(name), stored.kept) for name, stored in saved.items()}
    return sum(stored_bytes(graph.types[name], extents, plan.layouts[name], lanes) for name, extents in kept.items())
