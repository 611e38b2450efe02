"""Tensors that are held whole lie in the place of others that are not needed at the same time.

That no bit changes by it, tests/runtime/stream/test_equal_bits.py says of networks with attention.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickrt import zoo
from brickrt.graph.ir import Graph, Node
from brickrt.ops.expr import apply, arg
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import View
from brickrt.ops.types import TensorType
from brickrt.plan.stream.swept_tensors import node_times
from brickrt.plan.stream.units.whole_tensors import WholeTensors, place_whole_tensors
from tests.support.cpu.streams import plan_of, planner_of
from tests.support.zoo_networks import SMALLEST, slim_model

F32 = np.dtype(np.float32)
LAST = 9


def disjoint(found: WholeTensors, one: str, other: str) -> bool:
    starts = found.offsets[one], found.offsets[other]
    return starts[0] + found.sizes[one] <= starts[1] or starts[1] + found.sizes[other] <= starts[0]


def chain(length: int) -> Graph:
    """x ─ n0 ─ n1 … with an output each of the first and the last."""
    kind, copy = TensorType((1, 1, 8, 8), F32), Map(apply("neg", arg(0, F32)))
    names = ["x", *(f"n{k}" for k in range(length))]
    nodes = [Node(b, copy, (a,), b) for a, b in pairwise(names)]
    return Graph(tuple(nodes), dict.fromkeys(names, kind), {}, ("x",), ("n0", names[-1]))


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, LAST)), min_size=2, max_size=12))
def test_what_is_needed_at_the_same_time_lies_apart(nodes: list[tuple[int, int]]):
    """Each node reads what the one before it made, at times of its own."""
    graph, runs = chain(len(nodes)), sorted(time for _, time in nodes)
    sizes = {"x": 100, **{f"n{k}": size for k, (size, _) in enumerate(nodes)}}
    found = place_whole_tensors(graph, sizes, {k: [time] for k, time in enumerate(runs)}, LAST)
    assert max(sizes.values()) <= found.nbytes <= sum(-(-size // 64) * 64 for size in sizes.values())
    used: dict[str, set[int]] = {name: set() for name in sizes}
    for k, time in enumerate(runs):
        used[graph.nodes[k].inputs[0]].add(time)
        used[graph.nodes[k].output].add(time)
    used["x"].add(0)
    for name in graph.outputs:
        used[name].add(LAST)
    for one, other in combinations(sizes, 2):
        if min(used[one]) <= max(used[other]) and min(used[other]) <= max(used[one]):
            assert disjoint(found, one, other)


def test_what_lies_in_a_tensor_keeps_it():
    """A view of `n0` is read at the end."""
    graph = chain(4)
    nodes = (*graph.nodes, Node("v", View((1, 1, 8, 8)), ("n1",), "v"), Node("r", graph.nodes[0].op, ("v",), "r"))
    graph = Graph(nodes, {**graph.types, "v": graph.types["x"], "r": graph.types["x"]}, {}, ("x",), ("r",))
    sizes, times = {"n1": 64, "n2": 64, "n3": 64}, {0: [1], 1: [2], 2: [3], 3: [4], 5: [8]}
    found = place_whole_tensors(graph, sizes, times, LAST)
    assert disjoint(found, "n1", "n3") and disjoint(found, "n1", "n2")


@pytest.mark.parametrize("name", ["nafnet", "conformer", "mobilevit-s"])
def test_nodes_run_with_all_of_their_unit(name: str):
    """A unit whose last node is swept may compute what has no rows as well."""
    planner = planner_of(plan_of(slim_model(name, size=SMALLEST[name]), exact=False))
    swept, units = planner.network.swept, planner.network.units
    times = node_times(planner.plan.graph, units, swept, ())
    assert all(times[k] == times[unit.nodes[-1]] for unit in units for k in unit.members)
    assert all(times[unit.nodes[-1]] for unit in units)


def test_a_network_of_many_passes_holds_what_one_of_them_needs():
    """Where no pass computes again what earlier ones did, since that is spilled."""
    planner = planner_of(plan_of(zoo.build("restormer", size=256, width=16), exact=False))
    planner = planner.spilling(planner.may_spill)
    graph, swept, whole = planner.plan.graph, planner.network.swept, planner.whole
    assert swept.passes > 30 and whole.nbytes < sum(whole.sizes.values()) / 4
    together: dict[int, set[str]] = {}
    for k, times in node_times(graph, planner.network.units, swept, planner.network.spilled).items():
        for time in times:
            names = {graph.nodes[k].output, *graph.nodes[k].inputs} & whole.sizes.keys()
            together.setdefault(time, set()).update(names)
    assert len(together) > swept.passes
    assert all(disjoint(whole, *pair) for names in together.values() for pair in combinations(names, 2))
