"""Modelled traffic of a plan beside that of its layers one by one."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt import Runtime
from brickrt.cli.layerwise_traffic import layerwise_traffic
from tests.support.graphs.chains import chain


@pytest.mark.parametrize("strategy", ["layerwise", "padded", "memoized"])
def test_the_plan_beside_the_same_layer_by_layer(strategy):
    runtime = Runtime(chain(), strategy=strategy, brick=16, threads=1)
    found = layerwise_traffic(runtime.prepare({"x": np.ones((1, 3, 96, 96), np.float32)}))
    assert set(found.level_bytes) == set(found.layerwise_bytes)
    if strategy == "layerwise":
        assert found.level_bytes == found.layerwise_bytes
        assert found.reuse_bytes == found.layerwise_reuse_bytes
