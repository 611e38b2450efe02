"""Products with paired elements in bands: their bits are those of any other cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest

from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.plan.cost.strassen import PAIRED
from brickrt.plan.stream import band_plan
from tests.support.cpu.described import plan_for
from tests.support.cpu.schemes import needs_schemes
from tests.support.cpu.streams import plan_of, planner_of, random_inputs, run_stream
from tests.support.graphs.onnx_models import model, node, tensor

RANDOM = np.random.default_rng(7)
WEIGHTS = RANDOM.standard_normal((40, 70)).astype(np.float32)


def pointwise() -> tuple[onnx.ModelProto, str]:
    """A convolution of one pixel, with channels that are no multiple of a block."""
    made = model([node("Conv", "x w", "y")], [tensor("x", [1, 40, 19, 45])], w=WEIGHTS.T.copy()[..., None, None])
    return made, "bkhw,kn->bnhw"


def positions() -> tuple[onnx.ModelProto, str]:
    """A product of an image whose channels are last."""
    return model([node("MatMul", "x w", "y")], [tensor("x", [1, 19, 45, 40])], w=WEIGHTS), "bhwk,kn->bhwn"


@pytest.mark.parametrize("network", [pointwise, positions])
def test_bits_do_not_depend_on_the_cut(
    network: Callable[[], tuple[onnx.ModelProto, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(band_plan, "FEW_PIXELS", 20)  # so that images are cut along columns
    made, sums = network()
    plan, inputs = plan_of(made), random_inputs(made)
    (product,) = (k for k, one in enumerate(plan.graph.nodes) if isinstance(one.op, Conv | MatMul))
    plan = replace(plan, algorithms={product: PAIRED}, device=replace(plan.device, l2=2**12))
    planner = planner_of(plan)
    assert planner.plan.algorithms == {product: PAIRED}
    whole = run_stream(planner.stream_plan(100), inputs, 1)["y"]
    wanted = np.einsum(sums, inputs["x"].astype(np.float64), WEIGHTS)
    assert np.abs(whole - wanted).max() < 3e-6 * np.abs(wanted).max()
    bands = run_stream(planner.stream_plan(5, (2,)), inputs, 2)["y"]
    np.testing.assert_array_equal(bands, whole)


@needs_schemes
def test_segments_of_moments_behind_a_product_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_for(monkeypatch, pairs=True, tiles=False, l2=2**20)
    w, ones = RANDOM.standard_normal((32, 5120)).astype(np.float32), np.ones(2, np.float32)
    nodes = [node("MatMul", "x w", "z"), node("InstanceNormalization", "z s b", "y")]
    made = model(nodes, [tensor("x", [1, 2, 400, 32])], w=w, s=ones, b=ones)
    plan, inputs = plan_of(made, exact=False), random_inputs(made)
    (product,) = (one for one in plan.subgraphs if isinstance(plan.graph.nodes[one.nodes[0]].op, MatMul))
    assert plan.algorithms == {product.nodes[0]: PAIRED} and product.partial_reductions
    planner = planner_of(plan)
    z = inputs["x"].astype(np.float64) @ w
    wanted = (z - z.mean((2, 3), keepdims=True)) / np.sqrt(z.var((2, 3), keepdims=True) + 1e-5) + 1
    np.testing.assert_allclose(run_stream(planner.stream_plan(50), inputs, 2)["y"], wanted, 1e-4, 1e-4)
