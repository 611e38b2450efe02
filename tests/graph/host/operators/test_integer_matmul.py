"""Matrix products of integers on the host, against NumPy's own and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from brickrt.graph.host.operators import integer_matmul
from brickrt.graph.host.operators.integer_matmul import exact_product
from brickrt.graph.host.run_host_node import run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.onnx_models import compare_on_host, node

RANDOM = np.random.default_rng(0)
SHAPES = [((20, 30), (30, 25)), ((2, 1, 20, 33), (3, 33, 21)), ((30,), (30, 40)), ((40, 30), (30,)), ((1, 1), (1, 1))]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), st.sampled_from(SHAPES), st.sampled_from(["int8", "int32", "int64", "uint32", "uint64"]))
def test_as_numpy_to_the_last_bit(seed: int, shapes: tuple, dtype: str):
    """Values of any size, so that sums are exact in float32, in float64, or in neither, and wrap around."""
    rng = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    bound = 1 << int(rng.integers(1, limits.bits))
    low, high = max(limits.min, -bound), min(limits.max, bound)
    a, b = (rng.integers(low, high, shape, dtype=dtype, endpoint=True) for shape in shapes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integer_matmul, "LEAST_PRODUCTS_PER_ELEMENT", 0)
        found = exact_product(a, b)
    if found is not None:
        wanted = np.matmul(a, b)
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("largest", [9, 1 << 20, (1 << 31) - 1])
def test_as_onnxruntime(dtype: type, largest: int):
    a, b = (RANDOM.integers(-largest, largest, shape).astype(dtype) for shape in ((40, 50), (50, 60)))
    compare_on_host("MatMul", a, b)


def test_the_largest_sums_that_are_exact_are_computed_and_no_larger_ones():
    a, b = np.full((64, 1 << 7), -(1 << 23), np.int64), np.full((1 << 7, 64), 1 << 23, np.int64)
    found = exact_product(a, b)
    assert found is not None and (found == -(1 << 53)).all()
    a[3, 5] -= 1
    assert exact_product(a, b) is None
    assert exact_product(np.full((64, 64), -(1 << 63), np.int64), b[:64]) is None
    assert exact_product(np.ones((64, 64)), np.ones((64, 64))) is None


def test_no_elements():
    compare_on_host("MatMul", np.ones((0, 3), np.int32), np.ones((3, 2), np.int32))
    compare_on_host("MatMul", np.ones((4, 0), np.int64), np.ones((0, 2), np.int64))


def test_other_types_keep_theirs():
    """NumPy widens bfloat16."""
    proto = onnx_node(node("MatMul", "a b", "y"), {"": 17}, "n")
    a = np.float32([[1, 2], [3, 4]]).astype(helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))
    (y,) = run_node(proto, {"": 17}, {"a": a, "b": a})
    assert y.dtype == a.dtype and y.astype(np.float32).tolist() == [[7, 10], [15, 22]]
