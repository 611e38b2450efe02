"""Along which axis the rows of an image lie, after it was reshaped and transposed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cpu.streams import plan_of, planner_of
from tests.support.graphs.attention import FORMS, attention_network
from tests.support.graphs.onnx_models import model, node, tensor


@pytest.mark.parametrize("form", FORMS)
def test_only_keys_and_values_are_whole(form: str) -> None:
    """Queries and scores are swept, whichever axis their rows lie along."""
    planner = planner_of(plan_of(attention_network(form, (40, 36))))
    graph, swept = planner.plan.graph, planner.network.swept
    (attention,) = planner.attentions
    positions = 40 * 36
    assert attention.positions == (positions // 4 if form == "BigGAN" else positions)
    for k in attention.nodes:
        output = graph.nodes[k].output
        assert output in swept.level and graph.types[output].shape[swept.axes.of(output)] == positions
    read = {name for k in attention.nodes for name in graph.nodes[k].inputs}
    assert len(read & swept.collected.keys()) == 2


def test_rows_that_would_be_blocked_channels_are_collected() -> None:
    """A pool over the channels of every pixel, as a channel of its own."""
    nodes = [
        node("Conv", "x w", "a", pads=[1] * 4),
        node("Reshape", "a flat", "f"),
        node("Transpose", "f", "t", perm=[0, 2, 1]),
        node("MaxPool", "t", "p", kernel_shape=[2], strides=[2]),
        node("Transpose", "p", "u", perm=[0, 2, 1]),
        node("Reshape", "u image", "y"),
    ]
    shapes = {"flat": np.array([1, 8, -1]), "image": np.array([1, 4, 40, 33])}
    network = model(nodes, [tensor("x", [1, 3, 40, 33])], w=np.ones((8, 3, 3, 3), np.float32), **shapes)
    assert "t" in planner_of(plan_of(network)).network.swept.collected
