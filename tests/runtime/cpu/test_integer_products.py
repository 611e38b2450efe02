"""Quantized networks on the CPU engine: by every strategy and number of threads the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt import Runtime
from tests.support.graphs.quantized_models import QuantizedModel

SHAPE = (1, 6, 20, 18)
X = np.random.default_rng(3).uniform(-3, 3, SHAPE).astype(np.float32)
QUANTUM = 0.05


def network(signed: bool, zero: int) -> bytes:
    """Two branches that are added, a depthwise layer, a pool, means of channels and a matrix product."""
    m = QuantizedModel(1, signed, zero)
    x = m.quantized("x", 0.02)
    a = m.quantized(m.conv(x, 0.02, (18, 6, 1, 1)), 0.03)
    b = m.quantized(m.conv(x, 0.02, (18, 6, 3, 3), pads=[1] * 4), 0.04)
    y = m.quantized(m.node("Relu", m.node("Add", b, a)), 0.05)
    y = m.quantized(m.conv(y, 0.05, (18, 1, 3, 3), group=18, pads=[1] * 4, strides=[2, 2]), 0.06)
    y = m.quantized(m.node("MaxPool", y, kernel_shape=[2, 2]), 0.06)
    y = m.quantized(m.conv(y, 0.06, (20, 18, 1, 1)), 0.06)
    y = m.quantized(m.node("Flatten", m.node("GlobalAveragePool", y)), 0.03)
    w, scales = m.weights((20, 7), axis=1)
    y = m.node("Gemm", y, w, m.bias(7, (np.float32(0.03) * scales).astype(np.float32)))
    return m.model(m.quantized(y, QUANTUM), SHAPE)


def results(model: bytes, **how: object) -> np.ndarray:
    with Runtime(model, **how) as runtime:
        return next(iter(runtime.execute({"x": X}).values()))


@pytest.mark.parametrize(("signed", "zero"), [(False, 0), (True, 4)])
def test_a_quantized_network(signed, zero):
    model = network(signed, zero)
    want = results(model, device="reference")
    got = results(model, device="cpu", threads=1)
    assert np.abs(got - want).max() <= 1.001 * QUANTUM
    for how in ({"threads": 2}, {"strategy": "padded", "brick": 8}, {"strategy": "memoized", "brick": 8}):
        np.testing.assert_array_equal(results(model, device="cpu", **{"threads": 1, **how}), got)


def test_other_instruction_sets_give_the_same_bytes():
    model = network(False, 0)
    np.testing.assert_array_equal(results(model, device="cpu", isa="avx2"), results(model, device="cpu"))


@pytest.mark.parametrize(("zero", "widths"), [(0, (32,)), (7, (160,))])
def test_winograd_in_integers_gives_the_same_bytes(zero, widths):
    """By the instruction set that has it, with `exact` too, and whatever cuts the layers."""
    m = QuantizedModel(2, False, zero)
    y = m.quantized(m.conv(m.quantized("x", 0.02), 0.02, (32, 6, 1, 1)), 0.03)
    for channels in widths:
        y = m.quantized(m.conv(y, 0.03, (channels, 32, 3, 3), pads=[1] * 4), 0.03)
        y = m.quantized(m.conv(y, 0.03, (32, channels, 3, 3), pads=[1] * 4), 0.03)
    model = m.model(y, SHAPE)
    want = results(model, device="reference")
    with Runtime(model, device="cpu", isa="avx2", exact=True) as runtime:
        got = next(iter(runtime.execute({"x": X}).values()))
        names = list(runtime.plan.programs[0].tasks.plan.algorithms.values())
    assert names.count("winograd4-integers") >= 2
    assert np.abs(got - want).max() <= 0.0301
    np.testing.assert_array_equal(results(model, device="cpu"), got)
    for how in ({"strategy": "padded", "brick": 8}, {"strategy": "memoized", "brick": 8}, {"threads": 2}):
        np.testing.assert_array_equal(results(model, device="cpu", isa="avx2", **how), got)
