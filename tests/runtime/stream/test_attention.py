"""Attention over all positions of an image, in bands: queries stream, keys and values are whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brickrt
from brickrt.graph.passes import stitch
from brickrt.plan.stream.choose_bands import MemoryLimit, choose_bands
from brickrt.runtime.lowering.inplace_slices import find_inplace_slices
from tests.support.cpu.streams import plan_of, planner_of, random_inputs, run_stream
from tests.support.graphs.attention import FORMS, attention_network
from tests.support.graphs.onnx_models import model, node, tensor

MIB = 2**20


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    form=st.sampled_from(FORMS),
    extents=st.tuples(st.integers(2, 28), st.integers(2, 24)),
    batch=st.integers(1, 2),
    rows=st.sampled_from([1, 3, 7, 16]),
    strips=st.integers(1, 2),
    threads=st.integers(1, 3),
)
def test_bits_are_those_of_the_network_run_whole(
    form: str, extents: tuple[int, int], batch: int, rows: int, strips: int, threads: int
) -> None:
    network = attention_network(form, extents, batch)
    inputs = random_inputs(network)
    wanted = brickrt.Runtime(network, device="cpu", exact=True, threads=threads).execute(inputs)["y"]
    found = run_stream(planner_of(plan_of(network, threads=threads)).stream_plan(rows, (strips,)), inputs, threads)
    np.testing.assert_array_equal(found["y"], wanted)


# what the other two compute, these do as well
@pytest.mark.parametrize("form", ["latent diffusion", "BigGAN", "tokens", "keys in rows"])
def test_by_default_results_are_near(form: str) -> None:
    network = attention_network(form, (40, 33))
    inputs = random_inputs(network)
    planner = planner_of(plan_of(network, exact=False))
    assert len(planner.attentions) == 1
    found = run_stream(planner.stream_plan(8), inputs, 2)["y"]
    wanted = brickrt.Runtime(network, device="cpu", threads=2).execute(inputs)["y"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_softmax_over_very_many_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is several operators, none of which is stored."""
    monkeypatch.setattr(stitch, "ROW_BYTES", 1024)
    network = attention_network("tokens", (20, 33))
    plan, inputs = plan_of(network), random_inputs(network)
    planner = planner_of(plan)
    (attention,) = planner.attentions
    assert len(attention.nodes) > 4
    found = run_stream(planner.stream_plan(8), inputs, 2)["y"]
    wanted = brickrt.Runtime(network, device="cpu", exact=True, threads=2).execute(inputs)["y"]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_never_stored(form: str) -> None:
    """They would take 256 GiB of an image of 512² positions, whose keys and values take 32 MiB each."""
    plan = plan_of(attention_network(form, (512, 512), channels=32), exact=False)
    planner = planner_of(plan)
    factors = [name for name in planner.network.swept.collected if ":" not in name]  # partial sums of norms aside
    assert len(factors) == 2 and sum(planner.whole_bytes[name] for name in factors) <= 64 * MIB
    chosen = choose_bands(planner, find_inplace_slices(plan), MemoryLimit(2**30, 2, 128 * MIB))
    assert chosen.plan.rows < 512 and len(chosen.plan.attentions) == 1


def test_scores_that_are_normed_along_both_axes_are_whole() -> None:
    """As where pixels are matched in both directions: no row of scores is known before all are."""
    nodes = [
        node("Conv", "x w", "a", pads=[1] * 4),
        node("Reshape", "a flat", "f"),
        node("Transpose", "f", "t", perm=[0, 2, 1]),
        node("MatMul", "t f", "s"),
        node("Softmax", "s", "p", axis=1),
        node("Softmax", "s", "q", axis=2),
        node("Mul", "p q", "m"),
        node("MatMul", "f m", "o"),
        node("Reshape", "o image", "i"),
        node("Add", "i a", "y"),
    ]
    values = {"flat": np.array([1, 4, -1]), "image": np.array([1, 4, 40, 21])}
    weights = np.random.default_rng(2).standard_normal((4, 3, 3, 3)).astype(np.float32) / 5
    network = model(nodes, [tensor("x", (1, 3, 40, 21))], opset=21, w=weights, **values)
    planner, inputs = planner_of(plan_of(network)), random_inputs(network)
    assert not planner.attentions
    wanted = brickrt.Runtime(network, device="cpu", exact=True, threads=2).execute(inputs)["y"]
    np.testing.assert_array_equal(run_stream(planner.stream_plan(8), inputs, 2)["y"], wanted)
