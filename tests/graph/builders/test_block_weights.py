"""Constants of few bits that products take as they are stored."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from brickrt import Runtime
from brickrt.graph.interpret import run_nodes
from brickrt.graph.ir import Graph
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.operators.product_types import is_integer_product
from brickrt.ops.types import TensorType

DEPTH, COLUMNS = 24, 10
RANGES = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}
X = np.random.default_rng(0).standard_normal((3, DEPTH)).astype(np.float32)


def weights(kind: str, shape: tuple[int, int], axis: int, block: int, zeros: bool) -> list[onnx.TensorProto]:
    """q, scale and zero; by block along `axis`, by index of `axis` (`block` 0) or one for all (-1)."""
    rng, (low, high) = np.random.default_rng(1), RANGES[kind]
    dtype = np.dtype(getattr(ml_dtypes if "4" in kind else np, kind))
    many = tuple(-(-e // block) if k == axis else e for k, e in enumerate(shape)) if block > 0 else (shape[axis],)
    many = () if block < 0 else many
    arrays = {
        "q": rng.integers(low, high, shape).astype(dtype),
        "s": rng.uniform(0.01, 0.1, many).astype(np.float32),
        "z": rng.integers(low // 2, high // 2, many).astype(dtype),
    }
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()][: 3 if zeros else 2]


def model(kind: str, product: str, axis: int, block: int, zeros: bool = True, extra: bool = False) -> onnx.ModelProto:
    """x times dequantized weights by `product`: MatMul, Gemm (weights are [N, K]) or Transpose (the same, transposed
    before MatMul). With `extra` the weights are an output too."""
    shape = (DEPTH, COLUMNS) if product == "MatMul" else (COLUMNS, DEPTH)
    constants = weights(kind, shape, axis, block, zeros)
    how = {"axis": axis, "block_size": max(block, 0)}
    nodes = [helper.make_node("DequantizeLinear", [t.name for t in constants], ["w"], **how)]
    if product == "Gemm":
        constants.append(numpy_helper.from_array(np.arange(COLUMNS, dtype=np.float32), "b"))
        nodes.append(helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1))
    elif product == "Transpose":
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", ["x", "t"], ["y"]))
    else:
        nodes.append(helper.make_node("MatMul", ["x", "w"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y", "w")]
    graph = helper.make_graph(nodes, "few bits", ends[:1], ends[1 : 3 if extra else 2], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def built(made: onnx.ModelProto) -> Graph:
    stage = first_stage(load(made), frozenset(["x"]))
    return specialize(stage, {"x": TensorType(X.shape, X.dtype)}, {}, integers=True).graph


def check(made: onnx.ModelProto) -> Graph:
    graph = built(made)
    found = run_nodes(graph.nodes, {**graph.constants, "x": X})["y"]
    np.testing.assert_allclose(found, ReferenceEvaluator(made).run(["y"], {"x": X})[0], rtol=1e-5, atol=1e-5)
    return graph


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize(("product", "axis", "block"), [("MatMul", 0, 8), ("Gemm", 1, 4), ("Transpose", 1, 16)])
def test_blocks_of_what_is_summed_stay_stored(kind, product, axis, block):
    graph = check(model(kind, product, axis, block))
    (node,) = graph.nodes
    assert node.op.name == "BlockMatMul" and (node.op.bits, node.op.block) == (4 if "4" in kind else 8, block)
    assert graph.types[node.inputs[1]].nbytes == DEPTH * COLUMNS * node.op.bits // 8


@pytest.mark.parametrize(("axis", "block", "zeros"), [(1, 0, True), (0, -1, True), (0, -1, False), (0, 8, False)])
def test_scales_of_columns_and_of_all(axis, block, zeros):
    (node,) = check(model("int4", "MatMul", axis, block, zeros)).nodes
    assert node.op.name == "BlockMatMul"


@pytest.mark.parametrize(("kind", "axis", "block"), [("int4", 1, 5), ("int8", 0, 0)])
def test_scales_that_differ_along_what_is_summed_are_multiplied_before(kind, axis, block):
    (node,) = check(model(kind, "MatMul", axis, block)).nodes
    assert node.op.name == "MatMul"


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize(("product", "axis"), [("MatMul", 0), ("Gemm", 1)])
def test_scales_of_rows_are_multiplied_with_what_the_product_reads(kind, product, axis):
    """Zero points that differ are none of a product's: 0 is the same for all."""
    nodes = check(model(kind, product, axis, 0, zeros=False)).nodes
    assert [node.op.name for node in nodes] == ["Map", "BlockMatMul"]


@pytest.mark.parametrize(("kind", "zero"), [("int4", 0), ("int4", -3), ("uint4", 9)])
def test_convolutions_by_half_bytes_are_products_of_bytes(kind, zero):
    """x ─ Q ─ DQ ─ Conv by int4 with a scale for each channel."""
    rng, dtype, (low, high) = np.random.default_rng(2), np.dtype(getattr(ml_dtypes, kind)), RANGES[kind]
    arrays = {"xs": np.float32(0.02), "xz": np.uint8(120), "q": rng.integers(low, high, (6, 5, 3, 3)).astype(dtype)}
    arrays |= {"s": rng.uniform(0.01, 0.1, 6).astype(np.float32), "z": np.full(6, zero).astype(dtype)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0),
        helper.make_node("Conv", ["xd", "w"], ["y"], pads=[1] * 4),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    ends[0].type.tensor_type.shape.CopyFrom(helper.make_tensor_value_info("x", 1, [1, 5, 7, 8]).type.tensor_type.shape)
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "half bytes", ends[:1], ends[1:], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {"x": rng.standard_normal((1, 5, 7, 8)).astype(np.float32)}
    with Runtime(made, device="cpu", threads=1) as runtime:
        found = runtime.execute(feeds)["y"]
        graphs = [plan.graph for plan in runtime.plan.plans]
    kinds = [g.ins(node)[:2] for g in graphs for node in g.nodes if node.op.name == "Conv"]
    assert [is_integer_product(*pair) for pair in kinds] == [True]
    np.testing.assert_allclose(found, ReferenceEvaluator(made).run(["y"], feeds)[0], rtol=1e-5, atol=1e-5)


def test_halves_that_are_no_pairs_are_bytes():
    (node,) = check(model("uint4", "MatMul", 0, 3)).nodes
    assert (node.op.name, node.op.bits) == ("BlockMatMul", 8)


def test_weights_that_others_read_are_floats_too():
    made = model("int4", "MatMul", 0, 8, extra=True)
    special = specialize(first_stage(load(made), frozenset(["x"])), {"x": TensorType(X.shape, X.dtype)}, {}, True)
    np.testing.assert_array_equal(special.known["w"], ReferenceEvaluator(made).run(["w"], {"x": X})[0])


def test_later_stages_get_them_as_they_are_stored():
    """x ─ Unique (on the host) ─ Shape ─ how many rows of x are multiplied."""
    made = model("int4", "Transpose", 1, 8)
    turned = helper.make_node("Slice", ["x", "zero", "count", "one"], ["part"])
    count = [
        helper.make_node("Unique", ["x"], ["values"]),
        helper.make_node("Shape", ["values"], ["size"]),
        helper.make_node("Min", ["size", "three"], ["count"]),
    ]
    nodes = [*count, turned, *made.graph.node]
    nodes[-1].input[0] = "part"
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    ends = {"zero": [0], "one": [0], "three": [3]}
    made.graph.initializer.extend(numpy_helper.from_array(np.array(v), n) for n, v in ends.items())
    with Runtime(made, device="cpu", threads=1) as runtime:
        found = runtime.execute({"x": X})["y"]
        names = [node.op.name for plan in runtime.plan.plans for node in plan.graph.nodes]
    assert "BlockMatMul" in names
    np.testing.assert_allclose(found, ReferenceEvaluator(made).run(["y"], {"x": X})[0], rtol=1e-5, atol=1e-5)
