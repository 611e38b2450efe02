"""Single nodes on the host."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from brickrt.graph.errors import BrickError
from brickrt.graph.host.run_host_node import captured, deterministic, reads, run_node
from brickrt.graph.onnx_import.protobuf import onnx_node
from tests.support.graphs.onnx_models import by_onnxruntime, graph, model, node, tensor

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def run(proto: onnx.NodeProto, opset: int = 17, **arrays: object) -> list:
    opsets = {"": opset, "ai.onnx.ml": 3}
    return run_node(onnx_node(proto, opsets, "n"), opsets, arrays)


def same_as_onnxruntime(proto: onnx.NodeProto, opset: int, **arrays: np.ndarray) -> None:
    inputs = [tensor(name, a.shape, a.dtype) for name, a in arrays.items()]
    whole = model([proto], inputs, [onnx.ValueInfoProto(name=name) for name in proto.output], opset)
    expected = by_onnxruntime(whole, arrays)
    for name, value in zip(proto.output, run(proto, opset, **arrays), strict=True):
        assert (value.dtype, value.shape) == (expected[name].dtype, expected[name].shape)
        np.testing.assert_allclose(value, expected[name], 1e-5, 1e-5)


def test_outputs_come_in_order_and_unnamed_ones_are_none():
    values, indices = run(node("TopK", "x k", "_ i", axis=1), x=X, k=np.array([2]))
    assert values is None
    assert indices.shape == (2, 2, 4)


@pytest.mark.parametrize("size", [1, 3, 9])
def test_local_response_normalization_with_more_channels_than_images(size):
    images = np.concatenate([X, -X], 1)[..., None]
    same_as_onnxruntime(node("LRN", "x", "y", size=size, alpha=0.1, bias=2.0), 13, x=images)


@pytest.mark.parametrize("opset", [9, 13, 15])
def test_batch_norms_use_the_statistics_that_they_are_given(opset):
    """Those of the batch are for training, whatever `momentum` says."""
    arrays = {
        name: np.abs(np.random.default_rng(k).standard_normal(3)).astype(np.float32) for k, name in enumerate("sbmv")
    }
    same_as_onnxruntime(node("BatchNormalization", "x s b m v", "y", momentum=0.8), opset, x=X, **arrays)


def test_omitted_inputs():
    (y,) = run(node("Clip", "x _ high", "y"), x=X, high=np.float32(0.5))
    np.testing.assert_array_equal(y, np.minimum(X, 0.5))


def test_sequences_are_lists():
    (parts,) = run(node("SplitToSequence", "x", "s", axis=1, keepdims=0), x=X)
    assert [p.shape for p in parts] == [(2, 4)] * 3
    (second,) = run(node("SequenceAt", "s k", "y"), s=parts, k=np.array(1))
    np.testing.assert_array_equal(second, X[:, 1])


def test_absent_optionals_are_none():
    (full,) = run(node("Optional", "x", "o"), x=X)
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [2]))
    (empty,) = run(helper.make_node("Optional", [], ["o"], type=kind.optional_type.elem_type))
    np.testing.assert_array_equal(run(node("OptionalGetElement", "o", "y"), 18, o=full)[0], X)
    assert [bool(run(node("OptionalHasElement", "o", "y"), 18, o=o)[0]) for o in (full, empty)] == [True, False]


def test_strings():
    (y,) = run(node("StringNormalizer", "x", "y", case_change_action="UPPER"), x=np.array(["a", "b"], object))
    assert y.tolist() == ["A", "B"]


def test_captured_tensors_are_found_at_any_depth():
    """if a: (if b: x + y else: own) else: z"""
    inner = graph([node("Add", "x y", "t")], outputs="t")
    own = graph([node("Identity", "k", "e")], outputs="e", k=np.float32([1, 1]))
    then = graph([node("If", "b", "u", then_branch=inner, else_branch=own)], outputs="u")
    other = graph([node("Identity", "z", "v")], outputs="v")
    proto = node("If", "a", "w", then_branch=then, else_branch=other)
    assert set(captured(onnx_node(proto, {"": 17}, "n"))) == {"b", "x", "y", "z"}
    assert reads(onnx_node(proto, {"": 17}, "n"))[0] == "a"
    one = np.float32([1, 2])
    yes, no = np.array(True), np.array(False)
    assert run(proto, a=yes, b=yes, x=one, y=one, z=-one)[0].tolist() == [2, 4]
    assert run(proto, a=yes, b=no, x=one, y=one, z=-one)[0].tolist() == [1, 1]
    assert run(proto, a=no, b=no, x=one, y=one, z=-one)[0].tolist() == [-1, -2]


def loop(*more: onnx.NodeProto, outputs: list[onnx.ValueInfoProto]) -> onnx.NodeProto:
    """for i in range(n): total += x[i]; gives the total, then what `more` computes per iteration."""
    nodes = [node("Gather", "x i", "row", axis=0), node("Add", "total row", "next"), node("Identity", "c", "go"), *more]
    inputs = [tensor("i", [], np.int64), tensor("c", [], bool), tensor("total", [3])]
    body = graph(nodes, inputs, [tensor("go", [], bool), tensor("next", [3]), *outputs], name="body")
    return node("Loop", "n _ start", " ".join(["total_out", *(f"o{k}" for k in range(len(outputs)))]), body=body)


def test_loop_stacks_values_of_any_rank():
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    proto = loop(
        node("ReduceSum", "row", "s", keepdims=0),
        node("Identity", "next", "v"),
        node("Unsqueeze", "next zero", "m"),
        node("Constant", "", "zero", value_ints=[0]),
        outputs=[tensor("s", []), tensor("v", [3]), tensor("m", [1, 3])],
    )
    proto.attribute[0].g.node.insert(0, proto.attribute[0].g.node.pop())
    start = np.zeros(3, np.float32)
    total, s, v, m = run(proto, x=rows, n=np.array(2), start=start)
    assert total.tolist() == [3, 5, 7]
    assert s.tolist() == [3, 12]
    assert v.tolist() == [[0, 1, 2], [3, 5, 7]]
    assert m.shape == (2, 1, 3)
    none = run(proto, x=rows, n=np.array(0), start=start)
    assert [a.shape for a in none] == [(3,), (0,), (0, 3), (0, 1, 3)]


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_scan_along_any_axis_in_any_direction(axis, direction):
    inputs = [tensor("s", [4]), tensor("e", [4])]
    body = graph(
        [node("Add", "s e", "t"), node("Identity", "t", "u")], inputs, [tensor("t", [4]), tensor("u", [4])], name="body"
    )
    options = {f"scan_{side}_axes": [axis] for side in ("input", "output")}
    options |= {f"scan_{side}_directions": [direction] for side in ("input", "output")}
    proto = node("Scan", "start x", "end y", body=body, num_scan_inputs=1, **options)
    x = X[0] if axis == 0 else np.ascontiguousarray(X[0].T)
    same_as_onnxruntime(proto, 17, start=np.ones(4, np.float32), x=x)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("attrs", [{}, {"axis": 2}, {"axis": 0}], ids=str)
def test_softmax_of_old_opsets_spans_all_later_axes(op_type, opset, attrs):
    same_as_onnxruntime(node(op_type, "x", "y", **attrs), opset, x=X)


@pytest.mark.parametrize("opset", [10, 13])
def test_dequantize_of_old_opsets(opset):
    x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    scale, zero = (np.float32(0.5), np.uint8(3)) if opset == 10 else (np.float32([1, 2, 3, 4]), np.uint8([0, 1, 2, 3]))
    same_as_onnxruntime(node("DequantizeLinear", "x s z", "y"), opset, x=x, s=np.asarray(scale), z=np.asarray(zero))


def test_operators_that_the_reference_lacks():
    indices = np.array([[[0, 1, 1, 0]]])
    same_as_onnxruntime(node("Scatter", "x i u", "y", axis=1), 10, x=X, i=indices, u=np.ones((1, 1, 4), np.float32))
    same_as_onnxruntime(node("GlobalLpPool", "x", "y", p=3), 17, x=X)
    image = np.random.default_rng(1).standard_normal((2, 3, 8, 9)).astype(np.float32)
    rois = np.float32([[0, 0, 0, 5, 7], [1, 2, 1, 8, 4], [0, 3, 3, 3, 3]])
    proto = node("MaxRoiPool", "x rois", "y", pooled_shape=[2, 3], spatial_scale=1.0)
    same_as_onnxruntime(proto, 17, x=image, rois=rois)


def test_multinomial_draws_by_probability():
    proto = node("Multinomial", "x", "y", sample_size=1000, seed=1.0)
    (y,) = run(proto, x=np.log(np.float32([[0.25, 0.75, 1e-9]])))
    assert y.dtype == np.int32
    np.testing.assert_allclose(np.bincount(y[0], minlength=3) / 1000, [0.25, 0.75, 0], atol=0.05)


def test_maps_of_classical_models():
    scores = np.float32([[0.25, 0.75]])
    (rows,) = run(helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[3, 5]), x=scores)
    assert rows == [{3: 0.25, 5: 0.75}]
    (back,) = run(helper.make_node("CastMap", ["m"], ["y"], domain="ai.onnx.ml"), m=rows[0])
    np.testing.assert_array_equal(back, scores)
    mapper = helper.make_node(
        "CategoryMapper", ["x"], ["y"], domain="ai.onnx.ml", cats_int64s=[7, 8], cats_strings=["a", "b"]
    )
    assert run(mapper, x=np.array(["b", "z"], object))[0].tolist() == [8, -1]
    assert run(mapper, x=np.array([7, 9]))[0].tolist() == ["a", "_Unused"]


def test_functions_are_evaluated_by_their_bodies():
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    (y,) = run(node("GroupNormalization", "x s b", "y", num_groups=1), 21, x=X, s=ones, b=zeros)
    np.testing.assert_allclose(y.mean((1, 2)), 0, atol=1e-6)


def test_same_node_takes_other_types():
    proto = onnx_node(node("Mod", "a b", "y"), {"": 17}, "n")
    for dtype in (np.int32, np.uint8):
        (y,) = run_node(proto, {"": 17}, {"a": np.array([7], dtype), "b": np.array([4], dtype)})
        assert (y.dtype, y.tolist()) == (dtype, [3])


def test_failure_is_one_line_that_names_the_node():
    words = r"Gather node 'n' fails on the host for 'x' float32\[2,3,4\], 'i' int64\[1\]"
    with pytest.raises(BrickError, match=words) as e:
        run(node("Gather", "x i", "y"), x=X, i=np.array([9]))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("proto", "expected"),
    [
        (node("RandomNormal", "", "y", shape=[2]), False),
        (node("Dropout", "x r t", "y"), False),
        (node("Dropout", "x", "y"), True),
        (node("Add", "x x", "y"), True),
    ],
    ids=["random", "training", "inference", "add"],
)
def test_chance(proto, expected):
    assert deterministic(onnx_node(proto, {"": 17}, "n")) is expected


def test_tensor_attributes_are_arrays():
    value = onnx_node(node("ConstantOfShape", "s", "y", value=numpy_helper.from_array(np.int8([3]))), {"": 17}, "n")
    assert value.attrs["value"].dtype == np.int8


def test_more_elements_than_there_are():
    """Refused before anything of that size is made."""
    with pytest.raises(BrickError, match=r"TopK node 'TopK' is asked for 1099511627776 of 2 elements"):
        run(node("TopK", "x k", "y i"), x=np.ones(2, np.float32), k=np.array([1 << 40]))
