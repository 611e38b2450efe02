"""What swept bricks fetch ahead: tensors from outside and the output, by a convolution that is busy meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt import Runtime, zoo
from brickrt.ops.operators.conv import Conv
from brickrt.runtime.lowering import lower
from brickrt.runtime.lowering.task_graph import PrefetchTarget


@pytest.fixture(scope="module")
def swept():
    """NAFNet, whose tensors of 4 MB are more than a core's cache holds, and an input."""
    model = zoo.build("nafnet", size=192)
    x = np.random.default_rng(0).standard_normal((1, 3, 192, 192)).astype(np.float32)
    return model, {"x": x}


def test_targets_are_stored_tensors_of_other_subgraphs_or_the_output(swept):
    model, feeds = swept
    tasks = Runtime(model, threads=2).prepare(feeds).programs[0].tasks
    graph = tasks.plan.graph
    found = [s for s in tasks.steps if s.prefetches]
    assert found or all(s.band == s.brick for s in tasks.plan.subgraphs)
    for steps in found:
        node = graph.nodes[steps.node]
        subgraph = next(s for s in tasks.plan.subgraphs if steps.node in s.nodes)
        inner = {graph.nodes[k].output for k in subgraph.nodes[:-1]}
        assert isinstance(node.op, Conv) and node.op.groups == 1
        for name, target in steps.prefetches.items():
            assert name not in inner and name not in graph.constants
            assert tasks.allocations[name].kind != "scratch"
            assert target.write == (name == graph.nodes[subgraph.nodes[-1]].output)
            assert sum(target.shift) == (0 if target.write else min(subgraph.band[2:]))


def test_fetching_changes_no_bit(swept, monkeypatch):
    model, feeds = swept
    fetched = Runtime(model, threads=2).execute(feeds)
    monkeypatch.setattr(lower, "find_prefetches", lambda plan, subgraph, axis: {})
    plain = Runtime(model, threads=2).execute(feeds)
    for name, array in fetched.items():
        np.testing.assert_array_equal(array, plain[name])


def test_shifts_far_outside_are_harmless(swept, monkeypatch):
    """Lines may be asked for at any address."""
    model, feeds = swept
    expected = Runtime(model, threads=2).execute(feeds)
    real = lower.find_prefetches

    def far(plan, subgraph, axis):
        found = real(plan, subgraph, axis)
        return {
            k: {n: PrefetchTarget((0, 0, 10**7, 0), s.write) for n, s in names.items()} for k, names in found.items()
        }

    monkeypatch.setattr(lower, "find_prefetches", far)
    for name, array in Runtime(model, threads=2).execute(feeds).items():
        np.testing.assert_array_equal(array, expected[name])
