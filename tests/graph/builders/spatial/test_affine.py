"""Grids of affine transforms, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.builders_harness import check, one_node, run_model
from tests.support.graphs.onnx_models import by_onnxruntime

RNG = np.random.default_rng(0)
SPACES = [(5, 6), (1, 3), (4, 1), (3, 4, 5), (1, 2, 1)]


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_grids(dtype: type, space: tuple[int, ...], batch: int, align: int) -> None:
    rank = len(space)
    theta = RNG.standard_normal((batch, rank, rank + 1)).astype(dtype)
    check("AffineGrid", 20, [theta, np.array([batch, 2, *space])], align_corners=align)


@pytest.mark.parametrize("space", [(33, 70), (7, 9, 11)])
def test_in_kernels(space: tuple[int, ...]) -> None:
    rank = len(space)
    theta = RNG.standard_normal((1, rank, rank + 1)).astype(np.float32)
    model, feeds = one_node("AffineGrid", 20, [theta, np.array([1, 3, *space])])
    runtime = Runtime(model, device="cpu")
    (found,), (wanted,) = (d.values() for d in (runtime.execute(feeds), by_onnxruntime(model, feeds)))
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)
    assert not runtime.fallback


def test_a_size_that_does_not_suit_is_named() -> None:
    for size in ([2, 1, 4, 4], [1, 1, 4, 4, 4]):
        model, feeds = one_node("AffineGrid", 20, [np.ones((1, 2, 3), np.float32), np.array(size)])
        with pytest.raises(ValueError, match=r"theta \[1, 2, 3\] does not suit a size"):
            run_model(model, feeds)
