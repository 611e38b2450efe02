"""An element of its own in each line, at computed positions, and tables that are read by products with such rows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import brickrt
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.operators.gather_rows import GatherRows
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import TensorType
from tests.support.graphs.onnx_models import by_onnxruntime, model, node, tensor

RNG = np.random.default_rng(4)
LINES, CODES, COLUMNS = 6, 5, 3


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def codebook(codes: np.ndarray, zeros: float = 0.0, extent: int = CODES, between: str = "") -> onnx.ModelProto:
    """x [lines, codes] ─ ArgMin ─ positions ─ zeros with a one in each row ─ times the codes ─ y"""
    nodes = [
        node("ArgMin", "x", "at", axis=1, keepdims=1),
        node("ScatterElements", "zeros at ones", "hot", axis=1),
        *([node("Cast", "hot", "rows", to=onnx.TensorProto.FLOAT)] if between else []),
        node("MatMul", f"{'rows' if between else 'hot'} codes", "y"),
    ]
    kind = np.int64 if between else np.float32
    constants = {"zeros": np.full((LINES, extent), zeros, kind), "ones": np.ones((LINES, 1), kind), "codes": codes}
    return model(nodes, [tensor("x", [LINES, CODES])], "y" if between else "hot y", **constants)


def operators(proto: onnx.ModelProto, x: np.ndarray) -> list[type]:
    found = specialize(first_stage(load(proto)), {"x": TensorType(x.shape, x.dtype)}, {}, cpu_operators=True)
    assert not found.host_nodes
    return [type(n.op) for n in found.graph.nodes]


@pytest.mark.parametrize("between", ["", "cast"])
def test_products_with_a_one_in_each_row_read_rows(between):
    x, proto = data(LINES, CODES), codebook(data(CODES, COLUMNS), between=between)
    found = operators(proto, x)
    assert GatherRows in found and MatMul not in found
    actual = brickrt.Runtime(proto, device="cpu").execute({"x": x})
    for name, value in by_onnxruntime(proto, {"x": x}).items():
        np.testing.assert_array_equal(actual[name], value)


def test_a_single_row():
    nodes = [
        node("ArgMax", "x", "at", axis=0, keepdims=1),
        node("ScatterElements", "zeros at one", "hot", axis=0),
        node("MatMul", "hot codes", "y"),
    ]
    x, codes = data(CODES), data(CODES, COLUMNS)
    constants = {"zeros": np.zeros(CODES, np.float32), "one": np.ones(1, np.float32), "codes": codes}
    proto = model(nodes, [tensor("x", [CODES])], **constants)
    np.testing.assert_array_equal(brickrt.Runtime(proto, device="cpu").execute({"x": x})["y"], codes[x.argmax()])


@pytest.mark.parametrize(
    "given",
    [
        {"codes": data(CODES, COLUMNS), "zeros": 0.5},
        {"codes": np.where(np.eye(CODES, COLUMNS) > 0, np.inf, data(CODES, COLUMNS)).astype(np.float32)},
        {"codes": data(2, CODES, COLUMNS)},
    ],
    ids=["others are not zeros", "infinities", "several tables"],
)
def test_other_products_are_products(given):
    x, proto = data(LINES, CODES), codebook(**given)
    found = operators(proto, x)
    assert MatMul in found and GatherRows not in found
    actual = brickrt.Runtime(proto, device="cpu").execute({"x": x})
    for name, value in by_onnxruntime(proto, {"x": x}).items():
        np.testing.assert_allclose(actual[name], value, 1e-6, 1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_updates_of_any_tensor_along_any_axis(axis):
    """The greatest elements are replaced, as with ONNX Runtime."""
    shape = (3, 4, 5)
    lines = tuple(1 if k == axis else n for k, n in enumerate(shape))
    nodes = [
        node("ArgMax", "x", "at", axis=axis, keepdims=1),
        node("ScatterElements", "x at updates", "y", axis=axis),
    ]
    proto = model(nodes, [tensor("x", shape), tensor("updates", lines)])
    feeds = {"x": data(*shape), "updates": data(*lines)}
    np.testing.assert_array_equal(
        brickrt.Runtime(proto, device="cpu").execute(feeds)["y"], by_onnxruntime(proto, feeds)["y"]
    )


def test_positions_that_may_be_outside_are_left_to_the_host():
    """Five positions in lines of four: the host says which is wrong."""
    proto = codebook(data(CODES - 1, COLUMNS), extent=CODES - 1)
    x = np.ones((LINES, CODES), np.float32)
    x[2, -1] = 0
    with pytest.raises(brickrt.BrickError, match="ScatterElements"):
        brickrt.Runtime(proto, device="cpu").execute({"x": x})
