"""Resize and Upsample against ONNX Runtime and onnx.reference, over opsets, coordinates and rounding."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.builders.spatial.padding import positions
from tests.support.graphs.builders_harness import check, one_node, run_model

RNG = np.random.default_rng(3)
NOTHING = np.zeros(0, np.float32)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def omitted(version: int) -> list[np.ndarray | None]:
    """No roi and no scales; opset 11 has empty tensors for that."""
    return [NOTHING, NOTHING] if version < 13 else [None, None]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [[1.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.5, 2.4], [1.0, 1.0, 1.0, 1.0]])
def test_upsample(mode: str, scales: list[float]) -> None:
    x = data(1, 2, 5, 4)
    check("Upsample", 7, [x], mode=mode, scales=scales)
    check("Upsample", 9, [x, floats(*scales)], mode=mode)
    check("Resize", 10, [x, floats(*scales)], mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [[1, 1, 0.5, 0.3], [1, 1, 0.6, 0.8]])
def test_downsample_of_opset_10(mode: str, scales: list[float]) -> None:
    check("Resize", 10, [data(1, 2, 10, 7), floats(*scales)], mode=mode)


COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
SIZES = [[1, 2, 10, 13], [1, 2, 3, 4], [1, 2, 1, 9], [1, 2, 7, 5]]


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("version", [11, 13, 19])
def test_nearest(version: int, sizes: list[int], coordinates: str, rounding: str) -> None:
    attrs = {"nearest_mode": rounding, "coordinate_transformation_mode": coordinates}
    check("Resize", version, [data(1, 2, 7, 5), *omitted(version), ints(*sizes)], **attrs)


@pytest.mark.parametrize("scale", [1 / 3, 0.7, 1.4, 5 / 3, 2])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric"])
def test_nearest_by_scale(scale: float, coordinates: str) -> None:
    """Whether a position just misses an integer is decided as ONNX Runtime does."""
    for rounding in ("floor", "ceil", "round_prefer_floor"):
        attrs = {"nearest_mode": rounding, "coordinate_transformation_mode": coordinates}
        check("Resize", 13, [data(1, 1, 30, 21), None, floats(1, 1, scale, scale)], **attrs)


def test_half_pixel_of_tensorflow() -> None:
    attrs = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    check("Resize", 11, [data(1, 2, 7, 5), NOTHING, floats(1, 1, 2, 0.6)], **attrs)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("version", [11, 19])
def test_interpolation(version: int, mode: str, sizes: list[int], coordinates: str) -> None:
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
    check("Resize", version, [data(1, 2, 7, 5), *omitted(version), ints(*sizes)], tolerance=1e-4, **attrs)


@pytest.mark.parametrize("outside", [0, 1])
@pytest.mark.parametrize("a", [-0.5, -0.75])
def test_cubic_attributes(outside: int, a: float) -> None:
    attrs = {"mode": "cubic", "cubic_coeff_a": a, "exclude_outside": outside}
    check("Resize", 13, [data(1, 2, 7, 5), None, floats(1, 1, 1.7, 0.6)], tolerance=1e-4, **attrs)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("outside", [0, 1])
def test_antialias(mode: str, outside: int) -> None:
    attrs = {"mode": mode, "antialias": 1, "exclude_outside": outside}
    inputs = [data(1, 1, 11, 9), None, floats(1, 1, 0.37, 1.5)]
    check("Resize", 18, inputs, oracle="reference", **attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [[4, 5], [1, 8]])
def test_crop_and_resize(mode: str, sizes: list[int]) -> None:
    roi = floats(0, 0, 0.4, -0.2, 1, 1, 1.3, 0.8)
    attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.5}
    check("Resize", 13, [data(1, 2, 7, 6), roi, None, ints(1, 2, *sizes)], tolerance=1e-4, **attrs)


def test_crop_and_resize_by_scales() -> None:
    roi = floats(0, 0, 0.25, 0.1, 1, 1, 0.75, 0.9)
    attrs = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    check("Resize", 13, [data(1, 2, 8, 10), roi, floats(1, 1, 2, 1.5)], tolerance=1e-4, **attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_some_axes(mode: str) -> None:
    check("Resize", 18, [data(1, 2, 7, 6), None, floats(1.5, 0.7)], oracle="reference", mode=mode, axes=[3, 1])


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_aspect_ratio(policy: str, mode: str) -> None:
    inputs = [data(1, 2, 7, 6), None, None, ints(10, 11)]
    attrs = {"keep_aspect_ratio_policy": policy, "mode": mode, "axes": [2, 3]}
    check("Resize", 18, inputs, **attrs)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_symmetric_half_pixel(mode: str) -> None:
    attrs = {"mode": mode, "coordinate_transformation_mode": "half_pixel_symmetric"}
    check("Resize", 19, [data(1, 1, 7, 6), None, floats(1, 1, 1.4, 0.55)], oracle="reference", **attrs)


def test_integers_are_rounded() -> None:
    x = RNG.integers(0, 255, (1, 1, 6, 5)).astype(np.uint8)
    check("Resize", 19, [x, None, floats(1, 1, 1.6, 2.1)], oracle="reference", mode="cubic")
    check("Resize", 13, [x, None, floats(1, 1, 2, 3)], mode="nearest")


def test_nothing_to_do_is_no_operator() -> None:
    x = data(1, 2, 3, 4)
    (y,) = run_model(*one_node("Resize", 13, [x, None, floats(1, 1, 1, 1)], mode="cubic"))
    assert y is x


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_positions_of_padding_agree_with_numpy(mode: str) -> None:
    for extent, before, after in [(5, 2, 3), (5, 0, 0), (1, 3, 2), (4, 9, 11)]:
        table = np.array(positions(extent, before, after, mode))
        fill = {"constant_values": -1} if mode == "constant" else {}
        np.testing.assert_array_equal(table, np.pad(np.arange(extent), (before, after), mode=mode, **fill))
