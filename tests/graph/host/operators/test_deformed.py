"""Convolutions whose taps move, compiled and in NumPy, against ONNX Runtime and ONNX's reference."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from brickrt.graph.host.operators import deformed
from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime

RANDOM = np.random.default_rng(6)
BLOCKS = [deformed.BLOCK, 1, 30]


def data(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def on_host(*inputs: np.ndarray | None, **attrs: object) -> np.ndarray:
    model, feeds = one_node("DeformConv", 19, list(inputs), 1, **attrs)
    (found,) = run_node(onnx_node(model.graph.node[0], {"": 19}, "n"), {"": 19}, feeds)
    return found


def compare(*inputs: np.ndarray | None, **attrs: object) -> None:
    model, feeds = one_node("DeformConv", 19, list(inputs), 1, **attrs)
    found = on_host(*inputs, **attrs)
    for expected in (*by_onnxruntime(model, feeds).values(), *ReferenceEvaluator(model).run(None, feeds)):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, 1e-4, 2e-5)


@pytest.fixture(params=["compiled", "in NumPy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in NumPy":
        monkeypatch.setattr(deformed, "readable", lambda *_: None)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("groups", [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_taps_that_move(groups: tuple[int, int], masked: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole images at once, and blocks of one and of several outputs, which images have more elements than."""
    group, offset_group = groups
    monkeypatch.setattr(deformed, "BLOCK", block)
    settings = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 0, 1], "group": group}
    offset = data(2, offset_group * 6 * 2, 3, 5) * 2
    mask = data(2, offset_group * 6, 3, 5) if masked else None
    inputs = [data(2, 4, 6, 4), data(4, 4 // group, 3, 2), offset, data(4), mask]
    compare(*inputs, offset_group=offset_group, **settings)


@pytest.mark.usefixtures("way")
def test_windows_as_they_are() -> None:
    compare(data(1, 2, 4, 5), data(3, 2, 2, 2), data(1, 8, 3, 4))


def test_many_channels_lie_innermost_in_memory() -> None:
    compare(data(1, 20, 4, 5), data(3, 20, 3, 3), data(1, 18, 4, 5), pads=[1, 1, 1, 1])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_other_types_and_axes(rank: int) -> None:
    """In float64 NumPy computes all; what is compiled gives the same but for rounding."""
    space = (4, 5, 3)[:rank]
    inputs = [data(2, 4, *space), data(6, 2, *(2,) * rank), data(2, 2 * rank * 2**rank, *(n - 1 for n in space))]
    wanted = on_host(*(x.astype(np.float64) for x in inputs), group=2, offset_group=2)
    found = on_host(*inputs, group=2, offset_group=2)
    assert (found.dtype, wanted.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
    half = on_host(*(x.astype(np.float16) for x in inputs), group=2, offset_group=2)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, wanted, 0.1, 0.1)
