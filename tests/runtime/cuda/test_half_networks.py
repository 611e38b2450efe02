"""The CUDA engine on the host in half precision, with its own kernels: inputs and outputs stay float32."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt import zoo
from brickrt.graph.onnx_import.source import load
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.host_driver import HostDriver
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.graphs.by_definition import run_model

pytestmark = needs_compiler


@pytest.mark.parametrize(
    "precision, strategy, launch",
    [("fp16", "memoized", "persistent"), ("bf16", "padded", "graph"), ("fp16", "fused", "graph")],
)
def test_a_network_in_halves(monkeypatch, precision, strategy, launch):
    model = zoo.build("nafnet", size=8)
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    want = run_model(load(model), {"x": x})["y"]
    driver = HostDriver(threads=256, flags=("-O0",))  # better code takes longer to make than it saves
    runtime = runtime_on(monkeypatch, driver, model, launch, precision=precision, strategy=strategy, brick=4)
    result = runtime.execute({"x": x})["y"]
    assert (result.shape, result.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(result, want, rtol=0, atol={"fp16": 1e-2, "bf16": 5e-2}[precision] * np.abs(want).max())
    np.testing.assert_array_equal(runtime.execute({"x": x})["y"], result)
    driver.check()
