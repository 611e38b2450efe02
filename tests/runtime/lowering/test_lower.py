"""From plans to tasks: what waits for what, what is computed again, and who may write where when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.ops.operators.move import Take, View
from brickrt.runtime.analysis.cache_simulator import simulate
from brickrt.runtime.analysis.modelled_traffic import _Pieces, locality
from brickrt.runtime.lowering.lower import MANY_BRICKS
from tests.support.graphs.by_definition import interpret
from tests.support.graphs.piece_graphs import pieces
from tests.support.graphs.plan_graphs import Sketch, bottlenecks, networks
from tests.support.task_checks import (
    SERVER,
    ArenaMachine,
    any_order,
    check_arena,
    check_reads,
    lowered,
    needs,
    with_values,
)

STRATEGIES = ["layerwise", "padded", "memoized"]


def chain(layers: int, size: int, channels: int = 4) -> Sketch:
    """x → conv 3×3 → … → conv 3×3"""
    s = Sketch()
    x = s.input(1, channels, size, size)
    for _ in range(layers):
        x = s.conv(x, channels)
    return s


def tasks_of(tasks, strategy):
    """Task numbers of the subgraphs of a strategy, one list per subgraph."""
    return [
        np.flatnonzero(tasks.task_subgraph == s).tolist()
        for s, sub in enumerate(tasks.plan.subgraphs)
        if sub.strategy == strategy
    ]


# ---- one subgraph


def test_memoized_tasks_are_one_per_brick_and_wait_for_the_bricks_they_read():
    """x → conv a → conv b, 8×8 in bricks of 4. b0 reads all bricks of a, for its halo reaches all of them.

    a0 a1      b0 b1
    a2 a3      b2 b3
    """
    tasks = lowered(chain(2, 8).graph(), "memoized", brick=4)
    a, b = [s for s in tasks.steps if tasks.plan.graph.nodes[s.node].op.name == "Conv"]
    assert (len(a.boxes), len(b.boxes)) == (4, 4)
    waits = needs(tasks)
    assert all(not waits[t] or set(waits[t]).isdisjoint(b.tasks) for t in a.tasks)
    assert all(set(waits[t]) >= set(a.tasks.tolist()) for t in b.tasks)
    assert tasks.recomputed == 0


def test_every_dependency_between_bricks_overlaps_what_is_read():
    """x → conv → conv → conv, 24×24 in bricks of 4: a brick waits for itself and its neighbours below, no other."""
    tasks = lowered(chain(3, 24).graph(), "memoized", brick=4)
    graph, waits = tasks.plan.graph, needs(tasks)
    wrote = {task: (graph.nodes[s.node].output, s.boxes[k]) for s in tasks.steps for k, task in enumerate(s.tasks)}
    seen = 0
    for steps in tasks.steps:
        node = graph.nodes[steps.node]
        region = node.op.region(0, steps.boxes, graph.ins(node), graph.out(node))
        for k, task in enumerate(steps.tasks):
            for d in waits[task]:
                name, box = wrote[d]
                assert name == node.inputs[0]
                assert (np.minimum(region.hi[k], box.hi[0]) > np.maximum(region.lo[k], box.lo[0])).all()
                seen += 1
    assert seen > 2 * 36


def test_padded_tasks_wait_for_nothing_inside_their_subgraph():
    """x → conv → conv, bricks of 4: four tasks of three steps, positions in the order of the nodes."""
    tasks = lowered(chain(2, 8).graph(), "padded", brick=4)
    [mine] = tasks_of(tasks, "padded")
    waits = needs(tasks)
    assert all(set(waits[t]).isdisjoint(mine) for t in mine)
    inside = [s for s in tasks.steps if set(s.tasks.tolist()) == set(mine)]
    assert all(len(set(s.positions.tolist())) == 1 for s in inside)
    assert len({int(s.positions[0]) for s in inside}) == len(inside)
    assert len(inside) >= 2


def test_padded_bricks_recompute_their_halos():
    """8×8 in bricks of 4: of the first of two 3×3 layers a brick needs 5×5, of the reordered input 6×6, not 16."""
    tasks = lowered(chain(2, 8, channels=16).graph(), "padded", brick=4)
    first = next(s for s in tasks.steps if tasks.plan.graph.nodes[s.node].op.name == "Conv")
    assert first.boxes.extents.tolist() == [[1, 16, 5, 5]] * 4
    assert tasks.recomputed == (4 * 25 - 64 + 4 * 36 - 64) * 16


def test_what_is_never_needed_is_not_counted_as_recomputed():
    """x → abs → every second pixel, padded: less than all of abs is computed, and nothing twice."""
    s = Sketch()
    x = s.map("abs", s.input(1, 4, 16, 16))
    s.conv(x, 4, kernel=1, stride=2)
    tasks = lowered(s.graph(), "padded", brick=2)
    assert tasks_of(tasks, "padded")
    assert tasks.recomputed == 0


def test_a_view_costs_a_task_without_work():
    """x → abs → reshape → abs: the view waits for all of the first, the last for the view."""
    s = Sketch()
    x = s.map("abs", s.input(4, 6))
    y = s.add(View((24,)), x)
    s.map("abs", y)
    tasks = lowered(s.graph(), "layerwise")
    assert tasks.root(y) == x
    with_steps = {int(t) for steps in tasks.steps for t in steps.tasks}
    assert len(set(range(len(tasks))) - with_steps) == 1
    check_reads(tasks)


# ---- joins


def test_readers_of_most_of_a_tensor_wait_for_one_join():
    """x → abs, 64 slabs or more ─┬─────────── add       its reduction waits for the join, the sum for its own slabs
    join → sum ──┘
    """
    s = Sketch()
    x = s.map("abs", s.input(64, 8, 16, 16))
    s.map("add", x, s.reduce(x, 0, 1, 2, 3))
    tasks = lowered(s.graph(), "layerwise", replace(SERVER, cores=32, min_task_us=1e-6))
    slabs = np.flatnonzero(tasks.task_subgraph == 0).tolist()
    assert len(slabs) > MANY_BRICKS
    assert tasks.joins == 1
    [join] = np.flatnonzero(tasks.task_subgraph < 0).tolist()
    waits = needs(tasks)
    assert sorted(waits[join]) == slabs
    assert not any(join in steps.tasks for steps in tasks.steps)
    assert all(waits[t] == [join] for t in np.flatnonzero(tasks.task_subgraph == 1))
    assert all(join not in waits[t] for t in np.flatnonzero(tasks.task_subgraph == 2))
    check_reads(tasks)


# ---- any graph


@st.composite
def any_task_graph(draw):
    graph, inputs = with_values(draw(st.one_of(networks(), pieces())))
    strategy = draw(st.sampled_from([*STRATEGIES, "auto"]))
    cores = draw(st.sampled_from([1, 4]))
    device = replace(SERVER, cores=cores, min_task_us=draw(st.sampled_from([1e-3, 30.0])))
    brick, band = draw(st.sampled_from([1, 2, 3, 4, 8])), draw(st.sampled_from([None, 1, 2, 3]))
    return graph, inputs, lowered(graph, strategy, device, band, brick=brick)


@settings(max_examples=40, deadline=None)
@given(any_task_graph())
def test_nothing_is_read_before_it_is_written_nor_overwritten_before_it_is_read(case):
    _, _, tasks = case
    check_reads(tasks)
    check_arena(tasks)


@settings(max_examples=16, deadline=None)
@given(any_task_graph(), st.integers(0, 100))
def test_every_order_that_dependencies_allow_gives_the_same_result(case, seed):
    graph, inputs, tasks = case
    expected = interpret(graph, inputs)
    order = any_order(tasks, np.random.default_rng(seed))
    assert len(order) == len(tasks)
    for name, array in ArenaMachine(tasks, inputs).run(order).items():
        np.testing.assert_array_equal(array, expected[name], name)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_deep_network_reuses_memory_safely(strategy):
    """Four residual blocks: many tensors, few of them alive together."""
    graph, inputs = with_values(bottlenecks(4, size=12, channels=4))
    tasks = lowered(graph, strategy, brick=4)
    check_reads(tasks)
    check_arena(tasks)
    if strategy == "layerwise":
        assert tasks.arena_bytes < sum(p.nbytes for p in tasks.allocations.values() if p.kind == "arena") / 2
    expected = interpret(graph, inputs)
    for seed in (0, 1):
        [(name, array)] = ArenaMachine(tasks, inputs).run(any_order(tasks, np.random.default_rng(seed))).items()
        np.testing.assert_allclose(array, expected[name], rtol=1e-5)


def test_part_of_the_channels():
    """x → conv → channels 16 to 31 → abs: only these are computed, as one block."""
    s = Sketch()
    x = s.conv(s.input(1, 3, 8, 8), 48)
    x = s.add(Take((None, tuple(range(16, 32)), None, None)), x)
    s.map("abs", x)
    for strategy in STRATEGIES:
        graph, inputs = with_values(s.graph())
        tasks = lowered(graph, strategy, brick=4)
        check_reads(tasks)
        [(name, array)] = ArenaMachine(tasks, inputs).run(list(range(len(tasks)))).items()
        np.testing.assert_array_equal(array, interpret(graph, inputs)[name])


# ---- size and locality


def test_300000_bricks():
    """Three 3×3 layers on 1264×1264 pixels in bricks of 4: 99,856 bricks each, 9 dependencies but for the edges."""
    tasks = lowered(chain(3, 1264, channels=1).graph(), "memoized", replace(SERVER, l2=2**30), brick=4)
    n = 316 * 316
    convs = [s for s in tasks.steps if tasks.plan.graph.nodes[s.node].op.name == "Conv"]
    assert [len(s.boxes) for s in convs] == [n] * 3
    assert len(tasks) >= 3 * n
    inner = 314 * 314 * 9 + 4 * 314 * 6 + 4 * 4
    waits = np.diff(tasks.dep_offsets)
    assert [int(waits[s.tasks].sum()) for s in convs][1:] == [inner, inner]


def test_depth_first_keeps_fewer_bytes_alive_than_layer_by_layer():
    """x → conv → conv → conv → conv in 32×32 bricks: going deep first, no layer is ever there as a whole."""
    graph = chain(4, 256, channels=4).graph()
    tasks = lowered(graph, "memoized", replace(SERVER, l2=2**26, max_layers=9), brick=8)
    assert max(map(len, tasks_of(tasks, "memoized"))) >= 4 * 32 * 32
    model, n = _Pieces(tasks), len(tasks)
    all_of_them = np.ones(len(model.sizes), bool)
    reads, writes = model.csr(model.reads, all_of_them), model.csr(model.writes, all_of_them)
    by_layer = np.concatenate([s.tasks for s in tasks.steps])
    assert sorted(by_layer.tolist()) == list(range(n))
    half_a_layer = {"cache": 4 * 4 * 256 * 256 // 2}
    layers, depth = (
        simulate(order, reads, writes, np.asarray(model.sizes), half_a_layer) for order in (by_layer, np.arange(n))
    )
    assert depth.peak_live < layers.peak_live / 2
    assert depth.levels["cache"].moved < layers.levels["cache"].moved / 2
    assert locality(tasks).peak_live == depth.peak_live
