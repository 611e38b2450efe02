"""Scans whose bodies are programs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from brickrt.graph.errors import BrickError
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import by_onnxruntime, graph, model, node, tensor

X = np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32)


def scan(slices: tuple[int, ...] = (5, 3), **attributes: list[int]):
    """Over x and y at once: h ← tanh(x + h), stacking h + y"""
    body = graph(
        [node("Add", "a h", "p"), node("Tanh", "p", "h2"), node("Add", "h2 b", "s")],
        [tensor(name, slices) for name in "hab"],
        [tensor(name, slices) for name in ("h2", "s")],
    )
    made = node("Scan", "h0 x y", "last all", body=body, num_scan_inputs=2, name="s")
    made.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    inputs = [tensor("h0", slices), tensor("x", [None] * 3), tensor("y", [None] * 3)]
    return model([made], inputs, "last all")


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("out", [(0, 0), (0, 1), (1, 0), (-1, 1)])
def test_axes_and_directions(axis, back, out):
    slices = tuple(extent for k, extent in enumerate(X.shape) if k != axis % 3)
    proto = scan(
        slices,
        scan_input_axes=[axis, axis],
        scan_input_directions=[back, 1 - back],
        scan_output_axes=[out[0]],
        scan_output_directions=[out[1]],
    )
    arrays = {"h0": np.full(slices, 0.5, np.float32), "x": X, "y": -X}
    results = Runtime(proto, device="cpu", threads=1).execute(arrays)
    for name, value in by_onnxruntime(proto, arrays).items():
        np.testing.assert_allclose(results[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_tensors_of_different_numbers_of_slices():
    with pytest.raises(BrickError, match=r"^Scan node 's' fails on the host: .*4, 3 slices"):
        Runtime(scan(), device="cpu", threads=1).execute({"h0": X[0], "x": X, "y": X[:3]})


def test_no_slices():
    with pytest.raises(BrickError, match=r"^Scan node 's' fails on the host: .*unknown shape"):
        Runtime(scan(), device="cpu", threads=1).execute({"h0": X[0], "x": X[:0], "y": X[:0]})
