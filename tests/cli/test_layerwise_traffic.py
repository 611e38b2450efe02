"""Modelled traffic of a plan beside that of its layers one by one."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt import Runtime
from brickrt.cli.layerwise_traffic import _layer_by_layer, layerwise_traffic
from brickrt.runtime.analysis.modelled_traffic import locality
from brickrt.runtime.lowering.lower import lower
from tests.support.graphs.onnx_models import chain
from tests.support.graphs.plan_graphs import Sketch
from tests.support.task_checks import lowered


@pytest.mark.parametrize("strategy", ["layerwise", "padded", "memoized"])
def test_the_plan_beside_the_same_layer_by_layer(strategy):
    runtime = Runtime(chain(), strategy=strategy, brick=16, threads=1)
    found = layerwise_traffic(runtime.prepare({"x": np.ones((1, 3, 96, 96), np.float32)}))
    assert set(found.level_bytes) == set(found.layerwise_bytes)
    if strategy == "layerwise":
        assert found.level_bytes == found.layerwise_bytes
        assert found.reuse_bytes == found.layerwise_reuse_bytes


def test_means_of_what_a_task_has_just_written_move_nothing():
    """conv → global mean: sums of parts are made in the tasks of the convolution, of what lies in their caches."""
    s = Sketch()
    y = s.conv(s.input(1, 16, 128, 128), 32)
    s.reduce(y, 2, 3)
    tasks = lowered(s.graph(y, s.nodes[-1].output), "layerwise")
    assert any(subgraph.partial_reductions for subgraph in tasks.plan.subgraphs)
    level = locality(tasks).levels["l3"]
    given = 4 * (16 * 128 * 128 + 32 * 16 * 9)
    assert level.fetched == given
    again = lower(_layer_by_layer(tasks.plan))
    assert locality(again).levels["l3"] == level
