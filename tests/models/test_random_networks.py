"""Networks nobody wrote, on the CPU: right under every strategy, and the same bits for every number of threads."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import onnxruntime
from hypothesis import given, settings
from hypothesis import strategies as st

import brickrt
from tests.support.graphs.by_definition import run_model
from tests.support.random_networks import random_network

RUNS = [("layerwise", None), ("auto", None), *((s, b) for s in ("padded", "memoized") for b in (4, 5, 8, 32))]


@settings(max_examples=9, deadline=None, derandomize=True)
@given(st.integers(0, 2**20), st.sampled_from(RUNS), st.booleans())
def test_random_networks(seed: int, run: tuple[str, int | None], exact: bool) -> None:
    model = random_network(random.Random(seed))
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    strategy, brick = run
    results = []
    for threads in (1, 2):
        runtime = brickrt.Runtime(model, device="cpu", strategy=strategy, brick=brick, threads=threads, exact=exact)
        results.append(runtime.execute({"x": x}))
        merged = {part.strategy for plan in runtime.plans for part in plan.subgraphs}
        assert "padded" in merged or runtime.stats.recomputed == 0
    peer, truth = by_onnxruntime(model, x), run_model(brickrt.load(model), {"x": x})
    for name, result in results[0].items():
        np.testing.assert_array_equal(results[1][name], result, f"{name} on two threads")
        check_close(name, result, truth[name])
        check_close(name, result, peer[name])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**20))
def test_definitions_of_random_networks(seed: int) -> None:
    """What specializing makes of them: folded, fused, stitched."""
    model = random_network(random.Random(seed))
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    truth = run_model(brickrt.load(model), {"x": x})
    for name, wanted in by_onnxruntime(model, x).items():
        check_close(name, truth[name], wanted)


def check_close(name: str, result: np.ndarray, wanted: np.ndarray) -> None:
    """LogSoftmax may give infinities, which agree."""
    assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-4 * largest, err_msg=name)


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([value.name for value in model.graph.output], session.run(None, {"x": x})))
