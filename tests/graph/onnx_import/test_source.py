"""Importing models: what is accepted, and how it looks afterwards."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from brickrt.graph.onnx_import.source import load
from tests.support.graphs.onnx_models import graph, model, node, tensor, unknown

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def small(**changes: object) -> onnx.ModelProto:
    return model([node("MatMul", "x w", "y")], [tensor("x", ["N", 2])], [tensor("y", ["N", 3])], w=W, **changes)


def test_path_bytes_and_message_give_the_same(tmp_path):
    path = tmp_path / "small.onnx"
    onnx.save(small(), path)
    sources = [load(path), load(str(path)), load(path.read_bytes()), load(small())]
    for source in sources:
        assert source.inputs == {"x": (np.float32, ("N", 2))}
        assert source.outputs == {"y": (np.float32, ("N", 3))}
        assert source.opsets == {"": 17, "ai.onnx.ml": 3}
        np.testing.assert_array_equal(source.initializers["w"], W)
        assert [n.proto for n in source.nodes] == [n.proto for n in sources[0].nodes]


def test_repr_is_one_short_line():
    assert repr(load(small())) == "SourceGraph('g', nodes=1, inputs=1, outputs=1, constant_bytes=24)"


def test_message_stays_as_it_is():
    proto = small()
    before = proto.SerializeToString(deterministic=True)
    load(proto)
    assert proto.SerializeToString(deterministic=True) == before


def test_nodes_have_versions_attributes_and_unique_names():
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], name="n", axis=1),
        helper.make_node("Softmax", ["a"], ["b"], name="n"),
        helper.make_node("Relu", ["b"], ["y"], domain="ai.onnx"),
    ]
    source = load(model(nodes, [tensor("x", [1, 2])]))
    assert [n.name for n in source.nodes] == ["n", "n_1", "Relu_2"]
    assert [n.version for n in source.nodes] == [17] * 3
    assert source.nodes[0].attrs == {"axis": 1}
    assert source.nodes[2].domain == ""


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"value": numpy_helper.from_array(W)}, W),
        ({"value_float": 2.5}, np.float32(2.5)),
        ({"value_floats": [1.0, 2.0]}, np.array([1, 2], np.float32)),
        ({"value_int": 7}, np.int64(7)),
        ({"value_ints": [7, 8]}, np.array([7, 8])),
        ({"value_string": "a"}, np.array("a", object)),
        ({"value_strings": ["a", "b"]}, np.array(["a", "b"], object)),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_constant_nodes_are_initializers(attrs, expected):
    source = load(model([helper.make_node("Constant", [], ["c"], **attrs), node("Identity", "c", "y")]))
    assert [n.op_type for n in source.nodes] == ["Identity"]
    got = source.initializers["c"]
    assert (got.dtype, got.shape, got.tolist()) == (expected.dtype, expected.shape, expected.tolist())


def sparse(name: str) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([5, 6], np.float32), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 5])), [2, 3])


def test_sparse_tensors_are_made_dense():
    proto = model([helper.make_node("Constant", [], ["c"], sparse_value=sparse("")), node("Add", "c s", "y")])
    proto.graph.sparse_initializer.append(sparse("s"))
    source = load(proto)
    for name in "cs":
        assert source.initializers[name].tolist() == [[0, 5, 0], [0, 0, 6]]


def test_initializers_that_are_inputs_are_optional():
    proto = small()
    proto.graph.input.append(tensor("w", [2, 3]))
    source = load(proto)
    assert list(source.inputs) == ["x"]
    assert list(source.optional) == ["w"]
    np.testing.assert_array_equal(source.initializers["w"], W)


def test_functions_are_inlined():
    body = [node("Relu", "a", "t"), helper.make_node("Scale", ["t"], ["b"], domain="own")]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    scale = helper.make_function("own", "Scale", ["a"], ["b"], [node("Add", "a a", "b")], imports)
    outer = helper.make_function("own", "Outer", ["a"], ["b"], body, imports)
    proto = model([helper.make_node("Outer", ["x"], ["y"], domain="own")], [tensor("x", [2])])
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.functions.extend([scale, outer])
    assert [n.op_type for n in load(proto).nodes] == ["Relu", "Add"]


def test_older_opsets_are_converted():
    """Dropout has an attribute of its own for testing in opset 6, and none later."""
    source = load(model([node("Dropout", "x", "y", is_test=1)], [tensor("x", [2])], [tensor("y", [2])], opset=6))
    assert source.opsets[""] == 7
    assert [(n.op_type, n.version, "is_test" in n.attrs) for n in source.nodes] == [("Dropout", 7, False)]


def test_dimensions_may_be_open():
    source = load(model([node("Relu", "x", "y")], [tensor("x", [1, "H", None, -1])]))
    assert source.inputs["x"].shape == (1, "H", None, None)


def test_rank_may_be_open():
    assert load(model([node("Relu", "x", "y")], [tensor("x", None)])).inputs["x"].shape is None


def test_element_types_are_inferred():
    source = load(
        model([node("Cast", "x", "a", to=onnx.TensorProto.BFLOAT16), node("Relu", "a", "y")], [tensor("x", ["N"])])
    )
    assert source.element_types["a"].name == "bfloat16"


def test_outputs_may_have_no_type():
    source = load(model([node("Relu", "x", "y")], [tensor("x", [2])], unknown("y")))
    assert source.outputs == {"y": (None, None)}


def test_branches_keep_their_graphs():
    then = graph([node("Relu", "x", "t")], outputs="t")
    other = graph([node("Neg", "x", "e")], outputs="e")
    proto = model(
        [node("If", "c", "y", then_branch=then, else_branch=other)], [tensor("c", [], bool), tensor("x", [2])]
    )
    assert isinstance(load(proto).nodes[0].attrs["then_branch"], onnx.GraphProto)
