"""The depth-first order of demand, against its recursive definition."""

import time
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.plan.geometry.bricks import row_offsets
from brickrt.runtime.lowering import order as ordering
from brickrt.runtime.lowering.order import depth_first


def is_topological(offsets: np.ndarray, deps: np.ndarray, order: np.ndarray) -> bool:
    """Whether `order` holds every task once, each after all that it waits for."""
    n = len(offsets) - 1
    if not np.array_equal(np.sort(order), np.arange(n)):
        return False
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    return bool((place[deps] < np.repeat(place, np.diff(offsets))).all())


def csr(rows):
    return row_offsets(np.array([len(row) for row in rows], np.int64)), np.array(list(chain(*rows)), np.int32)


def demand(rows, roots):
    """The definition: compute what a task reads, then the task; then whatever nobody asked for."""
    order = []

    def visit(task):
        if task not in order:
            for dep in rows[task]:
                visit(dep)
            order.append(task)

    for task in [*roots, *range(len(rows))]:
        visit(task)
    return order


@st.composite
def task_graphs(draw):
    """Acyclic, with the tasks numbered at random and dependencies repeated at times; any tasks as roots."""
    n = draw(st.integers(1, 12))
    names = draw(st.permutations(range(n)))
    rows: list[list[int]] = [[] for _ in range(n)]
    for k in range(1, n):
        rows[names[k]] = [names[d] for d in draw(st.lists(st.integers(0, k - 1), max_size=4))]
    return rows, draw(st.lists(st.integers(0, n - 1), max_size=6))


@settings(deadline=None)
@given(task_graphs())
def test_order_is_what_the_recursion_visits(graph):
    rows, roots = graph
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "UNCOMPILED_WALK", 0)
        order = depth_first(*csr(rows), np.array(roots, np.int64))
    assert order.tolist() == demand(rows, roots)
    assert is_topological(*csr(rows), order)


def test_few_tasks_are_ordered_without_the_compiler(monkeypatch):
    monkeypatch.setattr(ordering, "_compiled_walk", lambda: pytest.fail("compiled"))
    assert depth_first(*csr([[], [0], [1]]), np.array([2])).tolist() == [0, 1, 2]


@settings(deadline=None)
@given(task_graphs())
def test_without_llvm_the_order_is_the_same(graph):
    rows, roots = graph
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "_compiled_walk", lambda: None)
        assert depth_first(*csr(rows), np.array(roots, np.int64)).tolist() == demand(rows, roots)


def test_a_pyramid_is_climbed_from_one_side():
    """Three layers of bricks, each reading its neighbours; the first output needs only part of what is below.

    roots   6   7   8
           / \\ /|\\ / \\        6 reads 3 4; 7 reads 3 4 5; 8 reads 4 5
            3   4   5
           / \\ /|\\ / \\        3 reads 0 1; 4 reads 0 1 2; 5 reads 1 2
            0   1   2
    """
    low = [[0, 1], [0, 1, 2], [1, 2]]
    rows = [[], [], [], *low, *[[d + 3 for d in row] for row in low]]
    assert depth_first(*csr(rows), np.array([6, 7, 8])).tolist() == [0, 1, 3, 2, 4, 6, 5, 7, 8]
    assert depth_first(*csr(rows), np.array([8, 7, 6])).tolist() == [0, 1, 2, 4, 5, 8, 3, 7, 6]


def test_tasks_that_nobody_demands_come_last():
    """0   1 ← 2   3 ← 4,   root 2"""
    assert depth_first(*csr([[], [], [1], [], [3]]), np.array([2])).tolist() == [1, 2, 0, 3, 4]


@pytest.mark.parametrize("walk", [ordering._compiled_walk(), None], ids=["compiled", "python"])
def test_cycles_are_named(walk, monkeypatch):
    """0 → 1 → 2 → 3
    ↑_______|      (arrows point at what a task waits for)
    """
    monkeypatch.setattr(ordering, "_compiled_walk", lambda: walk)
    monkeypatch.setattr(ordering, "UNCOMPILED_WALK", 0)
    with pytest.raises(ValueError, match="wait for each other in a cycle: 1 → 2 → 3 → 1"):
        depth_first(*csr([[1], [2], [3], [1]]), np.array([0]))
    with pytest.raises(ValueError, match="cycle: 0 → 0"):
        depth_first(*csr([[0]]), np.array([], np.int64))


def test_numbers_that_are_no_tasks_are_refused():
    with pytest.raises(ValueError, match="a dependency is not a task: numbers go from 0 to 0"):
        depth_first(*csr([[1]]), np.array([0]))
    with pytest.raises(ValueError, match="a root is not a task"):
        depth_first(*csr([[]]), np.array([-1]))
    with pytest.raises(ValueError, match="offsets must rise"):
        depth_first(np.array([0, 2]), np.array([0]), np.array([0]))


def test_no_tasks():
    assert depth_first(*csr([]), np.array([], np.int64)).tolist() == []


def test_depth_is_not_limited():
    n = 200_000
    rows = row_offsets(np.minimum(np.arange(n), 1)), np.arange(n - 1)
    np.testing.assert_array_equal(depth_first(*rows, np.array([n - 1])), np.arange(n))


def test_is_topological_sees_what_is_wrong():
    """0 ← 1 ← 2"""
    graph = csr([[], [0], [1]])
    assert is_topological(*graph, np.array([0, 1, 2]))
    for order in ([0, 2, 1], [0, 1], [0, 1, 1], [0, 1, 3]):
        assert not is_topological(*graph, np.array(order))


def test_300000_tasks_take_a_fraction_of_a_second():
    n, layer = 300_000, 30_000
    rng = np.random.default_rng(0)
    counts = np.where(np.arange(n) < layer, 0, 9)
    owner = np.repeat(np.arange(n), counts)
    deps = (owner - layer).clip(0) // layer * layer + (owner + rng.integers(-200, 200, len(owner))) % layer
    start = time.process_time()
    order = depth_first(row_offsets(counts), deps, np.arange(n - layer, n))
    assert time.process_time() - start < 0.5
    assert is_topological(row_offsets(counts), deps, order)
