"""Convolutions and pools against ONNX Runtime, over the opsets and the kinds of padding."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph.errors import Unsupported
from tests.support.graphs.builders_harness import check, one_node, run_model

RNG = np.random.default_rng(1)


def data(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


CONVS = {
    "one dimension": ((2, 3, 11), (4, 3, 3), {"pads": [1, 0]}),
    "three dimensions": ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"strides": [1, 2, 1]}),
    "groups": ((1, 6, 9, 8), (4, 3, 3, 3), {"group": 2, "pads": [1, 0, 2, 1]}),
    "depthwise": ((1, 4, 8, 8), (8, 1, 3, 3), {"group": 4, "strides": [2, 2]}),
    "dilations": ((1, 2, 12, 13), (3, 2, 3, 2), {"dilations": [2, 3], "pads": [2, 1, 0, 2]}),
    "same upper": ((1, 2, 10, 9), (3, 2, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [3, 2]}),
    "same lower": ((1, 2, 10, 9), (3, 2, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
    "valid": ((1, 2, 10, 9), (3, 2, 4, 3), {"auto_pad": "VALID", "strides": [3, 2]}),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("version", [7, 11, 22])
@pytest.mark.parametrize("name", CONVS)
def test_conv(name: str, version: int, bias: bool) -> None:
    x, w, attrs = CONVS[name]
    check("Conv", version, [data(*x), data(*w), *([data(w[0])] if bias else [])], **attrs)


TRANSPOSED = {
    "one dimension": ((2, 3, 5), (3, 4, 3), {"strides": [2]}),
    "three dimensions": ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": [2, 1, 2]}),
    "pads": ((1, 2, 5, 4), (2, 3, 4, 3), {"strides": [2, 2], "pads": [1, 0, 2, 1], "output_padding": [1, 0]}),
    "groups": ((1, 4, 5, 4), (4, 3, 3, 3), {"group": 2, "strides": [2, 3]}),
    "dilations": ((1, 2, 5, 4), (2, 3, 3, 2), {"dilations": [2, 3], "strides": [2, 1]}),
    "output shape": ((1, 2, 5, 4), (2, 3, 3, 3), {"strides": [2, 2], "output_shape": [10, 8]}),
    "output shape upper": (
        (1, 2, 5, 4), (2, 3, 4, 4), {"strides": [2, 2], "output_shape": [9, 8], "auto_pad": "SAME_UPPER"},
    ),
    "same upper": ((1, 2, 5, 4), (2, 3, 4, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "same lower": ((1, 2, 5, 4), (2, 3, 4, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    "valid": ((1, 2, 5, 4), (2, 3, 4, 3), {"strides": [3, 2], "auto_pad": "VALID"}),
}  # fmt: skip


@pytest.mark.parametrize("version", [7, 11, 22])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_conv_transpose(name: str, version: int) -> None:
    x, w, attrs = TRANSPOSED[name]
    check("ConvTranspose", version, [data(*x), data(*w), data(w[1] * attrs.get("group", 1))], **attrs)


POOLS = {
    "plain": ((1, 3, 10, 11), {"kernel_shape": [3, 2], "strides": [2, 1]}),
    "one dimension": ((2, 3, 10), {"kernel_shape": [3]}),
    "three dimensions": ((1, 2, 5, 6, 7), {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
    "pads": ((1, 3, 10, 11), {"kernel_shape": [3, 4], "strides": [2, 3], "pads": [1, 2, 0, 1]}),
    "same upper": ((1, 3, 10, 11), {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    "same lower": ((1, 3, 10, 11), {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    "valid": ((1, 3, 10, 11), {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "VALID"}),
}
CEILED = {
    "ceil": ((1, 3, 10, 12), {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
    "ceil pads": ((1, 2, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    "ceil drops": ((1, 1, 4, 5), {"kernel_shape": [1, 2], "strides": [2, 4], "pads": [0, 1, 0, 1], "ceil_mode": 1}),
}
DILATED = {"dilations": ((1, 3, 11, 12), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 0, 1]})}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("version", [8, 10, 11, 12, 22])
def test_max_pool(name: str, version: int) -> None:
    check("MaxPool", version, [data(*POOLS[name][0])], **POOLS[name][1])


@pytest.mark.parametrize("name", [*CEILED, *DILATED])
@pytest.mark.parametrize("version", [10, 12, 22])
def test_max_pool_ceil_and_dilations(name: str, version: int) -> None:
    shape, attrs = (CEILED | DILATED)[name]
    check("MaxPool", version, [data(*shape)], **attrs)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_integers(dtype: type) -> None:
    x = RNG.integers(0, 100, (1, 2, 6, 6)).astype(dtype)
    check("MaxPool", 12, [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])


INDEXED = {
    "tiles": ((2, 3, 4, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "a row left over": ((1, 2, 7, 5), {"kernel_shape": [2, 3], "strides": [2, 1]}),
    "dilated": ((2, 1, 9, 8), {"kernel_shape": [3, 3], "dilations": [2, 3]}),
    "one element": ((2, 2, 5, 4), {"kernel_shape": [1, 1], "strides": [2, 1]}),
    "a volume": ((1, 2, 4, 4, 6), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
    "a line": ((2, 2, 9), {"kernel_shape": [4], "strides": [3]}),
}


@pytest.mark.parametrize("name", INDEXED)
def test_max_pool_indices(name: str) -> None:
    """The first of equal maxima counts."""
    shape, attrs = INDEXED[name]
    check("MaxPool", 12, [np.round(data(*shape))], outputs=2, **attrs)


@pytest.mark.parametrize("attrs", [{"pads": [1, 0, 0, 0]}, {"storage_order": 1}, {"ceil_mode": 1, "strides": [3, 3]}])
def test_other_max_pool_indices_run_on_the_host(attrs: dict) -> None:
    with pytest.raises(Unsupported, match="Indices"):
        run_model(*one_node("MaxPool", 12, [data(1, 1, 5, 4)], outputs=2, kernel_shape=[2, 3], **attrs))


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("version", [7, 10, 11, 19, 22])
def test_average_pool(name: str, version: int, include: int) -> None:
    check("AveragePool", version, [data(*POOLS[name][0])], count_include_pad=include, **POOLS[name][1])


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("name", [*CEILED, *DILATED])
def test_average_pool_ceil_and_dilations(name: str, include: int) -> None:
    shape, attrs = (CEILED | DILATED)[name]
    check("AveragePool", 19, [data(*shape)], count_include_pad=include, **attrs)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("version", [7, 11, 18])
def test_lp_pool(name: str, version: int, p: int) -> None:
    check("LpPool", version, [data(*POOLS[name][0])], p=p, **POOLS[name][1])


@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 5, 4), (1, 3, 2, 4, 3)])
def test_global_pools(op: str, shape: tuple[int, ...]) -> None:
    check(op, 7, [data(*shape)])


@pytest.mark.parametrize("p", [1, 3])
def test_global_lp_pool_of_other_norms(p: int) -> None:
    check("GlobalLpPool", 7, [data(2, 3, 5, 4)], p=p)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("Conv", [(1, 3, 6, 6), (2, 3, 3, 3)], {}),
        ("ConvTranspose", [(1, 3, 4, 4), (3, 2, 3, 3)], {}),
        ("AveragePool", [(1, 3, 6, 6)], {"kernel_shape": [2, 2]}),
        ("GlobalAveragePool", [(1, 3, 6, 6)], {}),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floating_point_types(op: str, inputs: list, attrs: dict, dtype: type) -> None:
    tolerance = 5e-3 if dtype == np.float16 else 1e-9
    check(op, 22, [data(*s, dtype=dtype) for s in inputs], oracle="reference", tolerance=tolerance, **attrs)


def test_same_padding_counts_dilations() -> None:
    """ONNX Runtime refuses this; explicit pads say the same."""
    x, w = data(1, 2, 10, 9), data(3, 2, 3, 2)
    same = run_model(*one_node("Conv", 22, [x, w], auto_pad="SAME_LOWER", dilations=[2, 3]))
    explicit = run_model(*one_node("Conv", 22, [x, w], pads=[2, 2, 2, 1], dilations=[2, 3]))
    np.testing.assert_array_equal(same, explicit)


def test_same_padding_is_never_negative() -> None:
    """Strides beyond the window leave elements out; ONNX Runtime refuses this."""
    x = data(1, 3, 5, 5)
    (y,) = run_model(*one_node("MaxPool", 22, [x], kernel_shape=[1, 1], strides=[3, 3], auto_pad="SAME_UPPER"))
    np.testing.assert_array_equal(y, x[:, :, ::3, ::3])


def test_integer_average_runs_on_the_host() -> None:
    model, feeds = one_node("AveragePool", 22, [np.ones((1, 1, 4, 4), np.int32)], kernel_shape=[2, 2])
    with pytest.raises(Unsupported, match="int32"):
        run_model(model, feeds)


FOLDS = {
    "overlapping": ((5, 5), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "side by side": ((4, 6), (2, 3), {"strides": [2, 3]}),
    "an edge uncovered": ((7, 7), (2, 2), {"strides": [2, 2]}),
    "dilated": ((7, 9), (3, 2), {"strides": [1, 2], "dilations": [2, 1], "pads": [2, 0, 1, 1]}),
    "with gaps": ((8,), (3,), {"strides": [4]}),
    "volumes": ((3, 4, 5), (2, 2, 1), {"strides": [1, 2, 1]}),
}


@pytest.mark.parametrize("name", FOLDS)
def test_fold(name: str) -> None:
    image, block, attrs = FOLDS[name]
    rank = len(image)
    strides, dilations = (attrs.get(a, [1] * rank) for a in ("strides", "dilations"))
    pads = attrs.get("pads", [0] * 2 * rank)
    padded = [n + lo + hi for n, lo, hi in zip(image, pads[:rank], pads[rank:], strict=True)]
    places = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded, block, strides, dilations, strict=True)]
    x = data(2, 3 * int(np.prod(block)), int(np.prod(places)))
    check("Col2Im", 18, [x, np.array(image), np.array(block)], **attrs)


def test_fold_refuses_what_does_not_cover_the_image() -> None:
    for x, image, block in [((1, 4, 3), [3, 3], [2, 2]), ((1, 5, 4), [3, 3], [2, 2]), ((1, 4, 4), [3, 3], [2])]:
        with pytest.raises(ValueError, match="block"):
            run_model(*one_node("Col2Im", 18, [data(*x), np.array(image), np.array(block)]))


def test_fold_of_infinity_leaves_other_pixels_alone() -> None:
    x = data(1, 4, 4)
    x[0, 0, 0] = np.inf
    (y,) = run_model(*one_node("Col2Im", 18, [x, np.array([3, 3]), np.array([2, 2])]))
    assert np.isinf(y[0, 0, 0, 0]) and np.isfinite(y).sum() == 8
