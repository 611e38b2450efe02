"""Watched runs of a small network, one per strategy."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt import Runtime
from brickrt.dashboard.recording import GraphRun
from tests.support.graphs.onnx_models import chain


@pytest.fixture(scope="session", params=["layerwise", "padded", "memoized"])
def run(request) -> GraphRun:
    seen = []
    runtime = Runtime(chain(), threads=2, strategy=request.param, brick=16, watch=seen.append)
    runtime.execute({"x": np.ones((1, 3, 96, 96), np.float32)})
    return GraphRun(runtime.plan.programs[0].tasks, seen[0])
