"""Constants where networks mostly have what they compute: the left factor of a product, the image of a convolution."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor

STRATEGIES = [("auto", None), ("padded", 4), ("memoized", 4)]


def sample(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(proto: onnx.ModelProto, x: np.ndarray, run: tuple[str, int | None]) -> None:
    strategy, brick = run
    result = Runtime(proto, device="cpu", strategy=strategy, brick=brick, threads=2).execute({"x": x})["y"]
    want = by_onnxruntime(proto, {"x": x})["y"]
    assert result.shape == want.shape
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("run", STRATEGIES)
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 5, 40)])
def test_a_product_with_a_matrix_on_the_left(shape, run):
    """a x, and a x with a column added."""
    nodes, constants = [node("MatMul", "a x", "y")], {"a": sample(4, 5), "c": sample(4, 1)}
    check(model(nodes, [tensor("x", shape)], "y", a=constants["a"]), sample(*shape), run)
    nodes = [node("MatMul", "a x", "p"), node("Add", "p c", "s"), node("Relu", "s", "y")]
    check(model(nodes, [tensor("x", shape)], "y", **constants), sample(*shape), run)


@pytest.mark.parametrize("run", STRATEGIES)
@pytest.mark.parametrize(("channels", "weights", "groups"), [(6, (20, 6, 3, 3), 1), (16, (16, 1, 3, 3), 16)])
def test_an_image_that_is_convolved_with_what_comes_in(channels, weights, groups, run):
    nodes = [node("Conv", "image x", "c", pads=[1] * 4, group=groups), node("Relu", "c", "y")]
    check(model(nodes, [tensor("x", weights)], "y", image=sample(2, channels, 9, 11)), sample(*weights), run)


@pytest.mark.parametrize("run", STRATEGIES)
def test_an_image_that_is_spread_by_what_comes_in(run):
    nodes = [node("ConvTranspose", "image x", "y", strides=[2, 2])]
    check(model(nodes, [tensor("x", (6, 8, 2, 2))], "y", image=sample(1, 6, 9, 11)), sample(6, 8, 2, 2), run)


@pytest.mark.parametrize("run", STRATEGIES)
def test_rows_that_are_joined_to_an_image(run):
    """x → conv, channels in blocks → rows of a constant below → the largest of each window"""
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Concat", "c rows", "j", axis=2)]
    nodes += [node("MaxPool", "j", "y", kernel_shape=[2, 2])]
    constants = {"w": sample(32, 16, 3, 3), "rows": sample(1, 32, 2, 11)}
    check(model(nodes, [tensor("x", (1, 16, 9, 11))], "y", **constants), sample(1, 16, 9, 11), run)


def test_a_product_that_sums_nothing():
    bounds = {name: np.array([value], np.int64) for name, value in {"from": 4, "to": 4, "axis": 1}.items()}
    nodes = [node("Slice", "x from to axis", "none"), node("MatMul", "none w", "y")]
    check(model(nodes, [tensor("x", (3, 5))], "y", w=sample(0, 7), **bounds), sample(3, 5), ("auto", None))
