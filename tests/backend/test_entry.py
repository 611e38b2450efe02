"""The module as programs for ONNX's backends use it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import brickrt.backend as backend
from brickrt.graph.errors import BrickError
from tests.support.graphs.onnx_models import model, node, tensor


def test_models_and_nodes():
    x = np.array([[-1.0, 2.0]], np.float32)
    proto = model([node("Relu", "x", "y")], [tensor("x", (1, 2))])
    ready = backend.prepare(proto, device="CPU", threads=1)
    for given in ([x], (x,), x, {"x": x}):
        assert np.array_equal(ready.run(given)[0], [[0, 2]])
    assert np.array_equal(backend.run_model(proto, [x])[0], [[0, 2]])
    clipped = helper.make_node("Clip", ["x", "", "most"], ["y"])
    assert np.array_equal(backend.run_node(clipped, [x, np.float32(1)])[0], [[-1, 1]])
    with pytest.raises(BrickError, match="2 inputs are given, the model takes 1: x"):
        ready.run([x, x])


def test_devices():
    assert backend.supports_device("CPU")
    assert not backend.supports_device("TPU")
