"""Products with what ONNX Runtime's optimizer joined to them, beside NumPy in float64 and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.contrib.test_quantized_products import standard
from tests.support.contrib.contributed import check_contributed

RNG = np.random.default_rng(8)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


ACTIVATIONS = {
    "Relu": ((), lambda y: np.maximum(y, 0)),
    "Sigmoid": ((), lambda y: 1 / (1 + np.exp(-y))),
    "Tanh": ((), np.tanh),
    "LeakyRelu": ((0.2,), lambda y: np.where(y < 0, 0.2 * y, y)),
    "Clip": ((-0.5, 1.5), lambda y: np.clip(y, -0.5, 1.5)),
    "HardSigmoid": ((0.2, 0.4), lambda y: np.clip(0.2 * y + 0.4, 0, 1)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("added", [False, True])
def test_convolutions(name, added):
    given, function = ACTIVATIONS[name]

    def want(x, w, b, z=0):
        return function(standard("Conv", *(v.astype(np.float64) for v in (x, w, b)), pads=[1, 0, 1, 2]) + z)

    operands = [floats(2, 3, 5, 7), floats(4, 3, 3, 3), floats(4)] + ([floats(2, 4, 5, 7)] if added else [])
    how = {"activation": name, "activation_params": list(given)} if given else {"activation": name}
    check_contributed("FusedConv", operands, want, free=(0, 3) if added else (0,), pads=[1, 0, 1, 2], **how)


@pytest.mark.parametrize("kind", ["NhwcConv", "NhwcFusedConv"])
def test_convolutions_with_channels_innermost(kind):
    def want(x, w, b):
        y = standard("Conv", x.transpose(0, 3, 1, 2).astype(np.float64), *(v.astype(np.float64) for v in (w, b)))
        return np.maximum(y, 0).transpose(0, 2, 3, 1) if kind == "NhwcFusedConv" else y.transpose(0, 2, 3, 1)

    how = {"activation": "Relu"} if kind == "NhwcFusedConv" else {}
    check_contributed(kind, [floats(2, 5, 7, 3), floats(4, 3, 3, 3), floats(4)], want, theirs=False, **how)


@pytest.mark.parametrize("name", ["Relu", "LeakyRelu"])
def test_gemm(name):
    given, function = ACTIVATIONS[name]
    how = {"activation_alpha": given[0]} if given else {}
    want = lambda a, b, c: function(0.7 * a.T.astype(np.float64) @ b.T + 1.3 * c)  # noqa: E731
    operands = [floats(6, 5), floats(7, 6), floats(7)]
    check_contributed("FusedGemm", operands, want, transA=1, transB=1, alpha=0.7, beta=1.3, activation=name, **how)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("kind", ["FusedMatMul", "TransposeMatMul"])
def test_matmul(order, batch, kind):
    """`transBatch` puts the first axis before the last one, `trans` then exchanges the last two."""
    if batch and kind == "TransposeMatMul":
        pytest.skip("the older operator has no such attribute")
    a, b = np.empty((4, 2, 3, 5)), np.empty((4, 2, 5, 6))
    a = np.swapaxes(a, -1, -2) if order else a
    a = np.moveaxis(a, -2, 0) if batch else a

    def want(a, b):
        a = np.moveaxis(a.astype(np.float64), 0, -2) if batch else a.astype(np.float64)
        return 0.25 * (np.swapaxes(a, -1, -2) if order else a) @ b

    how = {"transBatchA": batch} if kind == "FusedMatMul" else {}
    check_contributed(kind, [floats(*a.shape), floats(*b.shape)], want, free=(0, 1), transA=order, alpha=0.25, **how)


def test_matmul_of_a_transposed_constant():
    want = lambda a, b: a.astype(np.float64) @ b.T  # noqa: E731
    check_contributed("FusedMatMul", [floats(3, 7, 5), floats(9, 5)], want, transB=1)
