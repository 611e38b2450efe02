"""Plans whose transformed weights take at most some bytes more than the weights."""

from __future__ import annotations

import dataclasses

import pytest

from brickrt.graph.ir import Graph
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.plan.cost.conv_algorithms import constant_bytes, layer_us
from brickrt.plan.lean_weights import transformed_bytes, with_transforms
from brickrt.plan.plan import make_plan
from tests.plan.cost.test_conv_algorithms import SERVER
from tests.support.graphs.plan_graphs import Sketch

PACING = dataclasses.replace(SERVER, paces_weights=True)


def network(*widths: int, size: int = 48) -> Graph:
    """3×3 convolutions with so many channels, each of half the size of the one before, and a product."""
    s = Sketch()
    x, before = s.input(1, 16, size, size), 16
    for k, channels in enumerate(widths):
        stride = 1 if k == 0 else 2
        op = Conv((3, 3), (stride, stride), (1, 1), (1, 1), (1, 1))
        x, before = s.add(op, x, s.constant(channels, before, 3, 3)), channels
        x = s.add(Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), x, s.constant(channels, channels, 3, 3))
    s.add(MatMul(), s.input(512, 512), s.constant(512, 512))
    return s.graph()


@pytest.mark.parametrize("device", [SERVER, PACING], ids=["server", "pacing"])
def test_at_most_so_many_bytes(device):
    plan = make_plan(network(32, 64, 256), device)
    added, before = transformed_bytes(plan), None
    assert added > 2 * constant_bytes(plan.graph)
    for share in (1.0, 0.5, 0.1, 0.0):
        lean = with_transforms(plan, int(share * added))
        assert transformed_bytes(lean) <= share * added
        assert before is None or set(lean.algorithms.items()) != before
        before = set(lean.algorithms.items())
    assert with_transforms(plan, added).subgraphs == plan.subgraphs


def test_what_saves_most_for_a_byte_stays():
    """That is the layer of most pixels, of layers with equal weights that are computed directly else."""
    s = Sketch()
    for size in (20, 80, 40):
        s.add(Conv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), s.input(1, 64, size, size), s.constant(64, 64, 3, 3))
    plan = make_plan(s.graph(), PACING)
    layers = sorted(plan.algorithms)
    assert len(layers) == 3
    lean = with_transforms(plan, transformed_bytes(plan) // 2)
    assert [k for k, name in plan.algorithms.items() if lean.algorithms.get(k) == name] == [layers[1]]


def test_others_have_the_fastest_that_reads_the_weights_themselves():
    plan = make_plan(network(32, 256), SERVER)
    lean = with_transforms(plan, 0)
    graph, constants = plan.graph, constant_bytes(plan.graph)
    for k in plan.algorithms:
        direct, chosen = (
            layer_us(graph, graph.nodes[k], SERVER, name, constants) for name in (None, lean.algorithms.get(k))
        )
        assert chosen <= direct and transformed_bytes(lean) == 0
