"""What is said of images whose size a network does not take."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from brickrt.cli.inputs.fitting_sizes import next_sizes, takes, telling_sizes, types_of
from brickrt.graph.errors import BrickError, InputError
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.ops.types import TensorType
from tests.support.cli_models import save, value


@pytest.fixture(scope="module")
def halving(tmp_path_factory) -> Path:
    """x [1, 2, H, W] → MaxPool 2 → MaxPool 2 → Resize × 4 → + x"""
    pools = [
        helper.make_node("MaxPool", [a], [b], kernel_shape=[2, 2], strides=[2, 2]) for a, b in (("x", "a"), ("a", "b"))
    ]
    nodes = [*pools, helper.make_node("Resize", ["b", "", "s"], ["c"]), helper.make_node("Add", ["c", "x"], ["y"])]
    ends = [value("x", (1, 2, "H", "W"))], [value("y", (1, 2, "H", "W"))]
    path = tmp_path_factory.mktemp("halving") / "halving.onnx"
    return save(path, nodes, *ends, [("s", np.array([1, 1, 4, 4], np.float32))])


@pytest.fixture(scope="module")
def source(halving) -> SourceGraph:
    return load(halving)


def types(*shape: int) -> dict[str, TensorType]:
    return {"x": TensorType(shape, np.dtype(np.float32))}


def test_the_next_multiples_are_found(source):
    assert takes(source, types(1, 2, 8, 12)) and not takes(source, types(1, 2, 8, 10))
    assert next_sizes(source, types(1, 2, 9, 12)) == (4, types(1, 2, 12, 12))
    assert next_sizes(source, types(1, 2, 1, 100)) == (4, types(1, 2, 4, 100))


def test_the_error_names_the_size_that_goes(call, halving, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 2, 9, 13), np.float32))
    called = call("run", halving, "--input", tmp_path / "x.npy")
    assert called.code == 2 and len(called.err.splitlines()) == 1
    assert "Add node" in called.err and "; it takes x 1×2×12×16, multiples of 4: --resize HxW" in called.err


def test_bands_name_it_too(call, halving, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 2, 9, 13), np.float32))
    words = ("run", halving, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--max-memory", "64GiB")
    called = call(*words)
    assert called.code == 2 and len(called.err.splitlines()) == 1 and [*tmp_path.iterdir()] == [tmp_path / "x.npy"]
    assert "; it takes x 1×2×12×16, multiples of 4: --window N for windows of the image, or another" in called.err


def test_other_errors_stay_as_they_are(source):
    fits, wrong = ({"x": np.zeros(shape, np.float32)} for shape in ((1, 2, 8, 8), (1, 3, 9, 9)))
    for arrays, error in ((fits, BrickError("something else")), (wrong, InputError("input 'x' has 3 channels"))):
        with pytest.raises(BrickError) as caught, telling_sizes(source, partial(types_of, arrays)):
            raise error
        assert caught.value is error
