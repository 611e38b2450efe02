"""Activations and normalizations of ONNX Runtime's own, beside NumPy in float64 and ONNX Runtime."""

from __future__ import annotations

import math

import numpy as np
import pytest

from brickrt import Runtime
from tests.support.contrib.contributed import check_contributed
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x.astype(np.float64) / math.sqrt(2)))


def by_tanh(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
    ("kind", "operands", "want"),
    [
        ("Gelu", [floats(3, 37)], gelu),
        ("BiasGelu", [floats(3, 5, 37), floats(37)], lambda x, b: gelu(x + b)),
        ("FastGelu", [floats(3, 37)], by_tanh),
        ("FastGelu", [floats(3, 5, 37), floats(37)], lambda x, b: by_tanh(x + b)),
        ("QuickGelu", [floats(3, 37)], lambda x: x / (1 + np.exp(-1.702 * x.astype(np.float64)))),
    ],
    ids=range(5),
)
def test_activations(kind, operands, want):
    check_contributed(kind, operands, want)


def test_activations_that_only_gpus_have():
    """ONNX Runtime has no kernels for them on a CPU."""
    x, bias, skip = floats(2, 5, 8), floats(8), floats(2, 5, 8)
    halves = lambda x, b: (x + b)[..., :4] * gelu((x + b)[..., 4:])  # noqa: E731
    check_contributed("BiasSplitGelu", [x, bias], halves, theirs=False)
    check_contributed("BiasAdd", [x, bias, skip], lambda x, b, s: x + b + s, theirs=False)
    product = lambda x, w, b: by_tanh(x @ w + b)  # noqa: E731
    check_contributed("GemmFastGelu", [x, floats(8, 3), floats(3)], product, theirs=False)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("inner", [0, 1])
def test_softmax_of_sums(inner):
    """The bias of a batch serves the heads in it, or that of heads all of the batch."""
    x, bias = floats(2, 3, 4, 5), floats(2, 1, 1, 5) if not inner else floats(1, 3, 4, 5)
    want = lambda x, b: softmax(x + b)  # noqa: E731
    check_contributed("BiasSoftmax", [x, bias], want, theirs=False, axis=3, is_inner_broadcast=inner)


def normalized(x: np.ndarray, epsilon: float, axes: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x - mean) / deviation over the last axes, the mean, and the deviation's reciprocal."""
    over = tuple(range(-axes, 0))
    mean = x.mean(over, keepdims=True, dtype=np.float64)
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(over, keepdims=True) + epsilon)
    return (x - mean) * inverse, mean, inverse


@pytest.mark.parametrize("skip", [(3, 5, 16), (5, 16), (1, 5, 16)])
@pytest.mark.parametrize(("shift", "bias"), [(True, True), (False, False)])
def test_layer_norm_of_sums(skip, shift, bias):
    def want(x, s, g, b=None, c=None):
        total = x + s + (0 if c is None else c)
        return normalized(total, 1e-12)[0] * g + (0 if b is None else b)

    operands = [
        floats(3, 5, 16),
        floats(*skip),
        floats(16),
        floats(16) if shift else None,
        floats(16) if bias else None,
    ]
    check_contributed("SkipLayerNormalization", operands, want, free=(0, 1), epsilon=1e-12)


def test_the_sum_that_is_normalized_is_an_output_too():
    """ONNX Runtime gives no mean and deviation on a CPU."""

    def want(x, s, g, b, c):
        y, mean, inverse = normalized(x + s + c, 1e-12)
        return y * g + b, mean, inverse, x + s + c

    operands = [floats(3, 5, 16), floats(3, 5, 16), floats(16), floats(16), floats(16)]
    check_contributed("SkipLayerNormalization", operands, want, free=(0, 1), outputs=4, theirs=False, epsilon=1e-12)


def test_root_mean_square_of_sums():
    def want(x, s, g, b):
        total = (x + s + b).astype(np.float64)
        return total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-6) * g

    operands = [floats(3, 5, 16), floats(3, 5, 16), floats(16), floats(16)]
    check_contributed("SkipSimplifiedLayerNormalization", operands, want, free=(0, 1), epsilon=1e-6)


@pytest.mark.parametrize("opset", [12, 17])
def test_norms_that_are_written_as_standard_ones(opset):
    """ONNX Runtime's optimizer writes them whatever opset the model has."""
    given = {"g": floats(16), "b": floats(16)}
    nodes = [
        node("LayerNormalization", "x g b", "n", axis=-1, epsilon=1e-5),
        node("SimplifiedLayerNormalization", "n g", "y", axis=-1, epsilon=1e-5),
    ]
    made = model(nodes, [tensor("x", [3, 16])], opset=opset, **given)
    x = floats(3, 16)
    with Runtime(made, device="cpu", threads=1) as runtime:
        got = runtime.execute({"x": x})["y"]
    y = normalized(x, 1e-5)[0] * given["g"] + given["b"]
    np.testing.assert_allclose(got, y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-5) * given["g"], 1e-4, 1e-5)
    np.testing.assert_allclose(got, by_onnxruntime(made, {"x": x})["y"], 1e-4, 1e-5)


@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_embeddings(places, segments):
    ids, kinds = RNG.integers(0, 11, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    order = np.array([[4, 3, 2, 1, 0], [0, 1, 2, 3, 4]], np.int32) if places else None

    def want(ids, kinds, words, at, of, g, b, mask, order=None):
        total = words[ids] + (at[order] if order is not None else at[:5]) + (of[kinds] if of is not None else 0)
        return normalized(total, 1e-12)[0] * g + b, mask.sum(1).astype(np.int32)

    operands = [ids, kinds if segments else None, floats(11, 16), floats(7, 16), floats(2, 16) if segments else None]
    operands += [floats(16), floats(16), mask, order]
    free = (0, 1, 7) if segments else (0, 7)
    check_contributed("EmbedLayerNormalization", operands, want, free=free, outputs=2, epsilon=1e-12)


@pytest.mark.parametrize("last", [0, 1])
def test_norms_of_groups(last):
    """ONNX Runtime has no kernel for them on a CPU."""

    def want(x, g, b):
        rows = x.transpose(0, 3, 1, 2) if last else x
        parted = rows.reshape(2, 4, -1)
        y = normalized(parted, 1e-5)[0].reshape(rows.shape) * g[:, None, None] + b[:, None, None]
        y = y / (1 + np.exp(-y))
        return y.transpose(0, 2, 3, 1) if last else y

    operands = [floats(2, 5, 3, 8) if last else floats(2, 8, 5, 3), floats(8), floats(8)]
    check_contributed("GroupNorm", operands, want, theirs=False, groups=4, activation=1, channels_last=last)
