"""Normalizations and softmax against ONNX Runtime, onnx.reference and their formulas, over opsets."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.errors import Unsupported
from tests.support.graphs.builders_harness import build, check, one_node, run_model

RNG = np.random.default_rng(5)


def data(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return (RNG.standard_normal(shape) * 3 + 1).astype(dtype)


def statistics(channels: int, dtype: type = np.float32) -> list[np.ndarray]:
    """Scale, bias, mean and variance."""
    return [data(channels, dtype=dtype) for _ in range(3)] + [np.abs(data(channels, dtype=dtype)) + dtype(0.1)]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4), (2, 3)])
@pytest.mark.parametrize("version", [7, 9, 14, 15])
def test_batch_norm(version: int, shape: tuple, constant: bool) -> None:
    inputs = [data(*shape), *statistics(3)]
    (expected,) = check("BatchNormalization", version, inputs, tolerance=1e-4, epsilon=1e-3)
    if constant:
        model, feeds = one_node("BatchNormalization", version, inputs, epsilon=1e-3)
        (y,) = run_model(model, feeds, ["in1", "in2", "in3", "in4"])
        np.testing.assert_allclose(y, expected, 1e-4, 1e-4)


def test_batch_norm_is_a_product_and_a_sum() -> None:
    model, feeds = one_node("BatchNormalization", 15, [data(2, 3, 4, 5), *statistics(3)])
    b, _ = build(model, feeds, {name: feeds[name] for name in ("in1", "in2", "in3", "in4")})
    (expr,) = (node.op.expr for node in b.nodes)
    assert (expr.fn, expr.args[0].fn) == ("add", "mul")
    assert b.type(b.nodes[0].inputs[1]).shape == (1, 3, 1, 1)


def test_batch_norm_of_halves() -> None:
    inputs = [data(2, 3, 4, dtype=np.float16), *statistics(3)]
    check("BatchNormalization", 15, inputs, oracle="reference", tolerance=1e-2)


def test_batch_norm_per_activation() -> None:
    """Opset 7 has a form with statistics for every element of a sample."""
    x, parameters = data(2, 3, 4), [np.abs(data(3, 4)) + 1 for _ in range(4)]
    (y,) = run_model(*one_node("BatchNormalization", 7, [x, *parameters], spatial=0))
    scale, bias, mean, var = parameters
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(var + 1e-5) * scale + bias, 1e-4, 1e-4)


def test_training_runs_on_the_host() -> None:
    model, feeds = one_node("BatchNormalization", 15, [data(2, 3, 4), *statistics(3)], outputs=3, training_mode=1)
    with pytest.raises(Unsupported, match="training"):
        run_model(model, feeds)


@pytest.mark.parametrize("axis", [-1, 1, -3])
@pytest.mark.parametrize("outputs", [1, 3])
def test_layer_norm(axis: int, outputs: int) -> None:
    x = data(2, 3, 4, 5)
    tail = x.shape[axis:]
    check("LayerNormalization", 17, [x, data(*tail), data(*tail)], outputs=outputs, tolerance=1e-4, axis=axis)
    check("LayerNormalization", 17, [x, data(*tail)], outputs=1, tolerance=1e-4, axis=axis, epsilon=0.1)


def test_layer_norm_of_halves_computes_in_float32() -> None:
    x = (data(2, 600) + 900).astype(np.float16)
    (y,) = run_model(*one_node("LayerNormalization", 17, [x, np.ones(600, np.float16)]))
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.astype(np.float64), exact, atol=2e-3)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rms_norm(axis: int, dtype: type) -> None:
    x = data(2, 3, 4, dtype=dtype)
    tolerance = 1e-2 if dtype == np.float16 else 1e-5
    check(
        "RMSNormalization",
        23,
        [x, data(*x.shape[axis:], dtype=dtype)],
        oracle="reference",
        tolerance=tolerance,
        axis=axis,
    )


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 7)])
def test_instance_norm(shape: tuple) -> None:
    check("InstanceNormalization", 7, [data(*shape), data(3), data(3)], tolerance=1e-4)


@pytest.mark.parametrize("shape", [(2, 6, 4, 5), (2, 6)])
@pytest.mark.parametrize("version", [18, 21])
def test_group_norm(version: int, shape: tuple) -> None:
    """Scale and bias are per group in opset 18 and per channel in opset 21."""
    x, count = data(*shape), 3 if version == 18 else 6
    scale, bias = data(count), data(count)
    (y,) = run_model(*one_node("GroupNormalization", version, [x, scale, bias], num_groups=3))
    grouped = x.reshape(2, 3, -1).astype(np.float64)
    flat = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    column = (1, 6, *(1,) * (len(shape) - 2))
    expected = flat.reshape(shape) * np.repeat(scale, 6 // count).reshape(column)
    np.testing.assert_allclose(y, expected + np.repeat(bias, 6 // count).reshape(column), 1e-4, 1e-4)


@pytest.mark.parametrize("size", [1, 3, 5, 9])
def test_lrn(size: int) -> None:
    check("LRN", 13, [data(2, 7, 3, 4)], tolerance=1e-4, size=size, alpha=0.3, beta=0.6, bias=1.5)


@pytest.mark.parametrize("size", [2, 4])
def test_lrn_of_even_size_reaches_further_up(size: int) -> None:
    """By the formula of the operator: ONNX Runtime takes odd sizes only, onnx.reference sums too few channels."""
    x = data(2, 7, 3)
    (y,) = run_model(*one_node("LRN", 13, [x], size=size, alpha=0.3))
    below, above = (size - 1) // 2, size // 2
    sums = [(x[:, max(c - below, 0) : c + above + 1] ** 2).sum(1) for c in range(7)]
    np.testing.assert_allclose(y, x / (1 + 0.3 / size * np.stack(sums, 1)) ** 0.75, 1e-4, 1e-4)


@pytest.mark.parametrize("channels, size", [(40, 67), (90, 65), (130, 96), (70, 10**6), (50_000, 3)])
def test_lrn_over_many_channels(channels: int, size: int) -> None:
    """Windows that are put together from windows of powers of two."""
    x = data(1, channels, 3)
    (y,) = run_model(*one_node("LRN", 13, [x], size=size, alpha=0.3 * size))
    below, above = (size - 1) // 2, size // 2
    sums = [(x[:, max(c - below, 0) : c + above + 1].astype(np.float64) ** 2).sum(1) for c in range(channels)]
    np.testing.assert_allclose(y, x / (1 + 0.3 * np.stack(sums, 1)) ** 0.75, 1e-5, 1e-6)


def test_lrn_of_no_elements() -> None:
    """Asks for no tables, however many channels there are."""
    x = np.zeros((0, 1 << 28), np.float32)
    (y,) = run_model(*one_node("LRN", 13, [x], size=3))
    assert y.shape == x.shape


@pytest.mark.parametrize("size", [5, 81])
def test_lrn_of_an_infinity(size: int) -> None:
    """Is 0 wherever the sum of squares is infinite, but NaN at the infinity itself, as in the operator's formula."""
    x = np.ones((1, 90, 1), np.float32)
    x[0, 0] = np.inf
    (y,) = run_model(*one_node("LRN", 13, [x], size=size))
    assert np.isnan(y[0, 0]) and (y[0, 1 : size // 2 + 1] == 0).all() and (y[0, size // 2 + 1 :] > 0).all()


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_normalization(p: int, axis: int) -> None:
    check("LpNormalization", 7, [data(3, 4, 5)], p=p, axis=axis)


@pytest.mark.parametrize("axes", [None, [1], [0, -1]])
def test_mean_variance_normalization(axes: list[int] | None) -> None:
    check("MeanVarianceNormalization", 13, [data(2, 3, 4, 5)], tolerance=1e-4, **({"axes": axes} if axes else {}))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("version", [7, 11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
def test_softmax(op: str, version: int, axis: int | None) -> None:
    """Before opset 13 all axes from the given one on are taken together."""
    if version == 7 and axis == -1:
        axis = 3
    check(op, version, [data(2, 3, 4, 5)], **({} if axis is None else {"axis": axis}))


def test_softmax_of_masked_scores_has_no_subnormal_numbers() -> None:
    """As windows of attention mask them, by -100: what is far below the greatest is nothing, not a subnormal number."""
    x = data(3, 40) + np.where(np.arange(40) % 3, 0, -100).astype(np.float32)
    x[0, 5], x[1, 7] = -np.inf, np.nan
    (y,) = run_model(*one_node("Softmax", 13, [x]))
    wide = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(y, wide / wide.sum(-1, keepdims=True), rtol=1e-5, atol=1e-37)
    assert np.isnan(y[1]).all() and (y[0, ::3] == 0).all() and y[0, 5] == 0


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_does_not_overflow(op: str) -> None:
    check(op, 13, [np.array([[1e4, -1e4, 1e4], [-1e30, 0, 1]], np.float32)])
    halves = np.array([[60000, -60000, 3], [1, 2, 3]], np.float16)
    (y,) = run_model(*one_node(op, 13, [halves]))
    assert y.dtype == np.float16 and not np.isnan(y).any()
