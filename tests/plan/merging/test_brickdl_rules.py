"""Plans by the rules of the BrickDL paper: what they say of small graphs, and that results are the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.errors import BrickError
from brickrt.plan.device.device_spec import PRESETS, DeviceSpec, host_device
from brickrt.plan.options import PlanOptions
from brickrt.plan.plan import Plan, make_plan
from brickrt.plan.subgraph import Subgraph
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.plan_graphs import Sketch, networks
from tests.support.zoo_networks import expected, network

ROOMY = dataclasses.replace(host_device(), l2=2**26)


def plan(s: Sketch, device: DeviceSpec = ROOMY, brick: int | None = None, max_layers: int = 8) -> Plan:
    return make_plan(s.graph(), device, PlanOptions(brick=brick, max_layers=max_layers, rules="brickdl")).verify()


def chain(size: int, kernels: tuple[int, ...], channels: int = 8) -> Sketch:
    """x ─ conv ─ … ─ conv, each of as many channels."""
    s = Sketch()
    y = s.input(1, channels, size, size)
    for kernel in kernels:
        y = s.conv(y, channels, kernel)
    return s


def only(made: Plan) -> Subgraph:
    (sub,) = made.subgraphs
    return sub


def layers(made: Plan) -> list[tuple[list[str], str]]:
    """The operators of each subgraph, those that change layouts left out, and its strategy."""
    named = [([made.graph.nodes[k].op.name for k in s.nodes], s.strategy) for s in made.subgraphs]
    kept = [([name for name in names if name != "Reorder"], strategy) for names, strategy in named]
    return [(names, strategy) for names, strategy in kept if names]


@pytest.mark.parametrize(("size", "edge", "rho"), [(16, 4, 16), (256, 4, 4096), (260, 8, 1056.25), (1024, 16, 4096)])
def test_the_edge_is_the_one_with_most_bricks_up_to_tau(size: int, edge: int, rho: float):
    sub = only(plan(chain(size, (1, 1))))
    assert sub.brick == (1, 8, edge, edge) and sub.rho == rho
    assert f"edge {edge}, ρ={rho:.3g} ≤ 4096" in sub.why


def test_the_largest_edge_where_all_give_more_than_tau():
    assert only(plan(chain(4096, (1, 1), channels=1))).brick == (1, 1, 32, 32)


@pytest.mark.parametrize(("size", "merged"), [(12, False), (15, False), (16, True)])
def test_fewer_bricks_than_a_brick_has_pixels_run_layer_by_layer(size: int, merged: bool):
    """At edge 4, 15×15 are 14.06 bricks, 16×16 are 16."""
    made = plan(chain(size, (1, 1)))
    assert layers(made) == ([(["Conv", "Conv"], "padded")] if merged else [(["Conv"], "layerwise")] * 2)
    if not merged:
        assert all(f"ρ={size * size / 16:.3g} < 4^2" in s.why for s in made.subgraphs)


@pytest.mark.parametrize(
    ("size", "kernels", "strategy", "delta"),
    [
        (256, (3, 1), "padded", 0.0),  # the halo is the input's, which costs no arithmetic
        (1024, (3, 3), "padded", (18**2 / 16**2 - 1) / 2),  # 13 %
        (256, (3, 3), "memoized", (6**2 / 4**2 - 1) / 2),  # 62 %
        (1024, (3, 3, 3), "memoized", ((20**2 + 18**2) / 16**2 - 2) / 3),  # 27 %
    ],
)
def test_bricks_are_memoized_where_halos_add_more_than_15_percent(size, kernels, strategy, delta):
    """Bricks at the edges have smaller halos: Δ is a little less than that of a brick in the middle."""
    sub = only(plan(chain(size, kernels)))
    assert sub.strategy == strategy and sub.delta == pytest.approx(delta, rel=0.05)
    assert f"Δ={sub.delta:.1%} {'>' if strategy == 'memoized' else '≤'} 15%" in sub.why


def test_a_reduction_ends_a_subgraph():
    """x ─ conv ─ sum over channels ─ conv ─ conv"""
    s = chain(64, (1,))
    total = s.reduce(s.nodes[-1].output, 1)
    s.conv(s.conv(total, 8, 1), 8, 1)
    made = plan(s)
    assert layers(made) == [(["Conv", "Reduce"], "padded"), (["Conv", "Conv"], "padded")]
    forced = make_plan(s.graph(), ROOMY, PlanOptions("padded", max_layers=8))
    assert layers(forced) == [(["Conv", "Reduce", "Conv", "Conv"], "padded")]  # nothing but the rule stands against it


def test_an_operator_that_needs_the_whole_tensor_stands_alone():
    """x ─ conv ─ mean of each channel ─ · ─ conv; and conv ─ ·"""
    s = chain(64, (1,))
    conv = s.nodes[-1].output
    s.conv(s.map("mul", conv, s.reduce(conv, 2, 3)), 8, 1)
    made = plan(s)
    assert layers(made) == [(["Conv"], "padded"), (["Reduce"], "layerwise"), (["Map", "Conv"], "padded")]
    assert "needs the whole tensor" in made.subgraphs[1].why


def test_bricks_fit_fast_memory():
    """x ─ conv ─ conv ─ conv ─ conv: bricks of 4×4, twice as the layout changes, 6×6, 8×8, 10×10 and 12×12 of 256 bytes
    a pixel are 8, 17, 33, 58 and 94 KiB with all before them."""
    s = chain(64, (3, 3, 3, 3), channels=64)
    assert layers(plan(s)) == [(["Conv"] * 4, "memoized")]
    for l2, merged in ((2**15, 1), (2**16, 3)):
        device = dataclasses.replace(ROOMY, l2=l2, l3=0)
        assert len(layers(plan(s, device))[-1][0]) == merged


def test_an_edge_and_layers_that_are_asked_for():
    made = plan(chain(64, (1, 1, 1)), brick=8, max_layers=2)
    assert layers(made) == [(["Conv"], "padded"), (["Conv", "Conv"], "padded")]
    assert all(s.brick == (1, 8, 8, 8) and "edge 8 as asked" in s.why for s in made.subgraphs)


@settings(max_examples=20, deadline=None)
@given(networks(), st.sampled_from([None, 1, 2]))
def test_plans_hold_every_node_once(graph, brick):
    for device in (ROOMY, PRESETS["h200"]):
        made = make_plan(graph, device, PlanOptions(brick=brick, rules="brickdl")).verify()
        assert {s.strategy for s in made.subgraphs} <= {"layerwise", "padded", "memoized"}


@pytest.mark.parametrize(("name", "size"), [("nafnet", 32), ("mobilenetv2", 64), ("vit-s16", 64)])
def test_results_are_those_of_layers(name, size):
    model, feeds = network(name, size)
    runs = [
        Runtime(model, device="cpu", threads=threads, exact=True, **options)
        for threads, options in ((1, {"strategy": "layerwise"}), (1, {"rules": "brickdl"}), (3, {"rules": "brickdl"}))
    ]
    layers, *others = (run.execute(feeds)["y"] for run in runs)
    for other in others:
        np.testing.assert_array_equal(other, layers)
    np.testing.assert_allclose(layers, expected(name, size), rtol=0, atol=1e-4 * np.abs(layers).max())
    assert any(s.strategy != "layerwise" for made in runs[1].plans for s in made.subgraphs)


def test_rules_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="rules 'best' is unknown: use one of model, brickdl, unfused"):
        PlanOptions(rules="best")  # type: ignore[arg-type]
    with pytest.raises(BrickError, match="rules 'brickdl' choose the strategies: leave them out, or strategy padded"):
        Runtime(network("nafnet", 8)[0], device="cpu", strategy="padded", rules="brickdl")
