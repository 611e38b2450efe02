"""Labels, masks, overlays, and what is known of a model's last values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from brickrt.cli.requests import ResultRequest
from brickrt.cli.results.decisions import decided, gives_probabilities, overlay
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import SourceGraph, load
from tests.support.cli_models import save, value


def ending(path, *ops: str, channels: int = 1, name: str = "y") -> SourceGraph:
    """x [1, channels, 4, 4] → ops → y."""
    names = ["x", *(f"t{k}" for k in range(len(ops) - 1)), name]
    nodes = [helper.make_node(op, [a], [b]) for op, a, b in zip(ops, names, names[1:])]
    dims = (1, channels, 4, 4)
    return load(save(path / "m.onnx", nodes, [value("x", dims)], [value(name, dims)]))


@pytest.mark.parametrize(
    ("ops", "known"), [(["Relu"], False), (["Sigmoid"], True), (["Softmax", "Identity"], True), (["Identity"], False)]
)
def test_probabilities_are_known_by_what_made_them(tmp_path, ops, known):
    assert gives_probabilities(ending(tmp_path, *ops)) == known


@pytest.mark.parametrize(
    ("ops", "channels", "asked", "last"),
    [
        (["Relu"], 1, ResultRequest("labels"), ("Greater", 0.0)),
        (["Sigmoid"], 1, ResultRequest("mask"), ("Greater", 0.5)),
        (["Sigmoid"], 1, ResultRequest("mask", threshold=0.9), ("Greater", 0.9)),
        (["Relu"], 3, ResultRequest("labels"), ("ArgMax", None)),
        (["Relu"], 3, ResultRequest(argmax=1), ("ArgMax", None)),
        (["Relu"], 3, ResultRequest(), ("Relu", None)),
    ],
)
def test_the_step_that_is_joined(tmp_path, ops, channels, asked, last):
    made = decided(ending(tmp_path, *ops, channels=channels), asked)
    steps = [node for node in made.nodes if node.op_type != "Cast"]
    assert steps[-1].op_type == last[0]
    if last[1] is not None:
        assert float(made.initializers[steps[-1].inputs[1]]) == pytest.approx(last[1])


def test_what_cannot_be_decided(tmp_path):
    source = ending(tmp_path, "Relu")
    with pytest.raises(BrickError, match="exclude each other"):
        decided(source, ResultRequest(argmax=1, threshold=0.5))
    flat = save(tmp_path / "f.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", (4,))], [value("y", (4,))])
    with pytest.raises(BrickError, match="does not say its channels"):
        decided(load(flat), ResultRequest("labels"))


def test_labels_lie_half_over_the_picture():
    pixels = np.full((2, 3, 3), 100, np.uint8)
    labels = np.array([[0, 1, 2], [0, 0, 3]], np.uint8)
    made = overlay(pixels, labels)
    assert made.shape == (3, 2, 3) and made[:, 0, 0].tolist() == [100, 100, 100]
    assert made[:, 0, 1].tolist() == [178, 50, 50]  # red, half
    assert len({tuple(made[:, y, x]) for y, x in ((0, 1), (0, 2), (1, 2))}) == 3
    assert overlay(pixels[:, :, :1], labels).shape == (3, 2, 3)
    with pytest.raises(BrickError, match="labels are 1x1, the picture 2x3"):
        overlay(pixels, labels[:1, :1])
