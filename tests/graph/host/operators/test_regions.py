"""Bins of regions of images: compiled, by the definition in float64, and by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickrt.graph.errors import BrickError
from brickrt.graph.host.helpers import Helpers, helped
from brickrt.graph.host.operators import regions as module
from brickrt.graph.host.operators.regions import Regions, pooled, pooled_in_numpy
from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.cpu.harness import GuardedMemory
from tests.support.cpu.item_threads import by_threads
from tests.support.graphs.builders_harness import one_node
from tests.support.graphs.onnx_models import by_onnxruntime

RANDOM = np.random.default_rng(6)
ROIS = np.array([[0, 0, 9, 6], [2.5, 1.2, 5.1, 8.8], [-4, -3, 3, 2], [7, 7, 30, 30], [3, 3, 3.2, 3.1]], np.float32)
IMAGES = np.array([0, 1, 1, 0, 1])
LOST = [np.nan, np.inf, -np.inf, 1e30, -1e9, 3e5]
"""Coordinates of no pixel."""


def data(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def drawn(seed: int, count: int, extent: int, lost: bool) -> np.ndarray:
    """Corners around an image; some at pixels, some equal, some in the wrong order, some that are no places."""
    rng = np.random.default_rng(seed)
    rois = rng.uniform(-3, extent + 3, (count, 4)).astype(np.float32)
    rois[rng.random((count, 4)) < 0.3] = rng.integers(0, extent + 1)
    if lost:
        some = rng.random((count, 4)) < 0.2
        rois[some] = rng.choice(np.array(LOST, np.float32), some.sum())
    return rois


@settings(max_examples=60, deadline=None)  # the first compiles
@given(
    st.integers(0, 999),
    st.tuples(st.integers(1, 2), st.sampled_from([0, 1, 3, 16, 17, 70]), st.integers(1, 19), st.integers(1, 19)),
    st.integers(0, 5),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_compiled_as_defined(seed, shape, count, bins, ratio, half, maxima, lost):
    """Also no regions, no channels, one pixel, coordinates that are no numbers, and pixels behind which memory ends."""
    rng = np.random.default_rng(seed)
    x = GuardedMemory(rng.standard_normal(shape).astype(np.float32)).array
    images = rng.integers(0, shape[0], count)
    regions = Regions.of(drawn(seed, count, 16, lost), images, bins, 0.8, ratio, half)
    got = pooled(x, regions, maxima)
    np.testing.assert_allclose(got, pooled_in_numpy(x, regions, maxima), 2e-5, 2e-5)
    with helped(Helpers(3, by_threads)):
        np.testing.assert_array_equal(pooled(x, regions, maxima), got)


@pytest.mark.parametrize("maxima", [False, True])
def test_pixels_that_no_sample_touches_do_not_count(maxima: bool):
    x = np.full((1, 20, 9, 9), np.nan, np.float32)
    x[..., 2:4, 2:4] = 5
    regions = Regions.of(np.array([[2, 2, 3, 3]], np.float32), np.zeros(1), (2, 2), 1.0, 2, False)
    np.testing.assert_array_less(pooled(x, regions, maxima), 6)


def compare(*inputs: np.ndarray, opset: int, **attrs: object) -> None:
    model, feeds = one_node("RoiAlign", opset, list(inputs), 1, **attrs)
    (actual,) = run_node(onnx_node(model.graph.node[0], {"": opset}, "n"), {"": opset}, feeds)
    (expected,) = by_onnxruntime(model, feeds).values()
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(actual, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("sampling_ratio", [0, 2])
@pytest.mark.parametrize(
    ("opset", "more"),
    [
        (10, {}),
        (16, {}),
        (16, {"coordinate_transformation_mode": "output_half_pixel"}),
    ],
)
def test_regions(opset: int, more: dict, sampling_ratio: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside, partly outside and wholly outside of the image, and smaller than a pixel; compiled and in NumPy."""
    how = {"output_height": 3, "output_width": 2, "spatial_scale": 0.7, "sampling_ratio": sampling_ratio}
    x = data(2, 3, 8, 10)
    compare(x, ROIS, IMAGES, opset=opset, mode=mode, **how, **more)
    monkeypatch.setattr(module, "item_loop", lambda *_: None)
    compare(x, ROIS, IMAGES, opset=opset, mode=mode, **how, **more)


def test_as_many_samples_as_onnxruntime_takes():
    """Regions of whole numbers of pixels, give or take a last bit, of which a sample more would show."""
    at = RANDOM.uniform(0, 9, (200, 2)).astype(np.float32)
    rois = np.concatenate([at, at + RANDOM.integers(1, 7, (200, 2)).astype(np.float32) * 2], 1)
    compare(data(1, 4, 20, 20), rois, np.zeros(200, np.int64), opset=16, output_height=2, output_width=2)


def test_an_image_that_is_not_there_is_named():
    for number in (2, -1):
        with pytest.raises(BrickError, match=f"image {number} of 2"):
            compare(data(2, 3, 8, 10), ROIS, np.full(5, number), opset=16)


@pytest.mark.parametrize("far", [3e5, 1e9, 3e38])
@pytest.mark.parametrize("maxima", [False, True])
def test_regions_from_far_away_read_no_more_than_the_image(far: float, maxima: bool):
    """Their samples may lie anywhere, as a float32 is rounded there, and the largest end at no number."""
    rois = np.float32([[-far, -far, 5, 5], [5, 5, far, far], [-far, 3, far, 4], [-far, -far, far, far]])
    x = GuardedMemory(RANDOM.standard_normal((1, 3, 40, 300)).astype(np.float32)).array
    for ratio in (0, 3):
        regions = Regions.of(rois, np.zeros(4), (7, 7), 1.0, ratio, False)
        got = pooled(x, regions, maxima)
        np.testing.assert_allclose(got, pooled_in_numpy(x, regions, maxima), 1e-4, 1e-5)
