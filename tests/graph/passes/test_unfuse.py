"""Convolutions with gates and factors become separate operators again."""

from __future__ import annotations

import pytest

from brickrt.graph.builder import Builder
from brickrt.graph.passes.fuse import fuse
from brickrt.graph.passes.fuse_channel_scales import FEWEST_PIXELS
from brickrt.graph.passes.unfuse import unfuse
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.move import Take
from tests.support.graphs.small_graphs import ADD, MUL, array, make, ops, same_results

X = (2, 3, 16, FEWEST_PIXELS // 16)


def pointwise(b: Builder, x: str, channels: int) -> str:
    w = b.constant(array(channels, b.type(x).shape[1], 1, 1), "w")
    op = Conv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), bias=True)
    return b.emit(op, x, w, b.constant(array(channels), "b"))


def gate(b: Builder, x: str) -> str:
    half = b.type(x).shape[1] // 2
    tables = [tuple(range(k, k + half)) for k in (0, half)]
    return b.emit(MUL, *(b.emit(Take((None, table, None, None)), x) for table in tables))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_unfused(scaled, gated, residual):
    def build(b: Builder) -> str:
        y = pointwise(b, b.emit(MUL, "x", "s") if scaled else "x", 8 if gated else 4)
        y = gate(b, y) if gated else y
        return b.emit(ADD, y, "z") if residual else y

    before = make(build, x=X, s=(1, 3, 1, 1), z=(2, 4, *X[2:]))
    fused = fuse(before)
    assert ops(fused) == ["Conv"]
    after = same_results(before, unfuse(fused))
    convs = [node.op for node in after.nodes if isinstance(node.op, Conv)]
    assert all(op.gate_parts == 1 and not op.channel_scaled for op in convs)
    assert ops(after) == ["Map"] * scaled + ["Conv"] + ["Take", "Take", "Map"] * gated


def test_gates_may_stay():
    fused = fuse(make(lambda b: gate(b, pointwise(b, b.emit(MUL, "x", "s"), 8)), x=X, s=(1, 3, 1, 1)))
    after = same_results(fused, unfuse(fused, gates=False))
    assert ops(after) == ["Map", "Conv"] and after.nodes[1].op.gate_parts == 2 and not after.nodes[1].op.channel_scaled
