"""Fused bricks on the host that make the partial sums of pools, as those of images larger than a GPU's cache do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brickrt import zoo
from brickrt.graph.onnx_import.source import load
from tests.support.cuda.engines import runtime_on
from tests.support.cuda.host_driver import SMALL, HostDriver
from tests.support.cuda.host_kernels import needs_compiler
from tests.support.graphs.by_definition import run_model

pytestmark = needs_compiler


def test_partial_sums_are_made_in_fused_bricks(monkeypatch):
    """Bricks of 16 in an image of 40: segments and bricks at the ends are shorter."""
    model = zoo.build("nafnet", size=40, blocks=1)
    x = np.random.default_rng(0).standard_normal((1, 3, 40, 40)).astype(np.float32)
    want = run_model(load(model), {"x": x})["y"]
    driver = HostDriver()
    driver.spec = replace(SMALL, l2=1 << 10)
    runtime = runtime_on(monkeypatch, driver, model, "graph", strategy="fused", brick=16)
    result = runtime.execute({"x": x})["y"]
    np.testing.assert_allclose(result, want, rtol=0, atol=1e-4 * np.abs(want).max())
    np.testing.assert_array_equal(runtime.execute({"x": x})["y"], result)
    driver.check()
    (program,) = runtime.plan.programs
    hosts = [s for s in program.tasks.plan.subgraphs if s.partial_reductions]
    assert [s.strategy for s in hosts] == ["fused"]
