"""From models to brick graphs: constants, names, types, staging."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from brickrt.graph import builder
from brickrt.graph.errors import BrickError, Unsupported
from brickrt.graph.onnx_import.source import SourceGraph, load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import FEW_OPERATIONS, Specialized, first_stage
from brickrt.ops.types import TensorType
from tests.support.graphs.by_definition import run_model
from tests.support.graphs.onnx_models import by_onnxruntime, graph, model, node, tensor, unknown
from tests.support.graphs.small_graphs import RELU

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def types(**arrays: np.ndarray) -> dict[str, TensorType]:
    return {name: TensorType(a.shape, a.dtype) for name, a in arrays.items()}


def first(source: SourceGraph | onnx.ModelProto, values: dict | None = None, **arrays: np.ndarray) -> Specialized:
    source = source if isinstance(source, SourceGraph) else load(source)
    return specialize(first_stage(source), types(**arrays), values or {})


def ops(part: Specialized) -> list[str]:
    return [n.op.name for n in part.graph.nodes]


def same_as_onnxruntime(proto: onnx.ModelProto, **arrays: np.ndarray) -> None:
    actual = run_model(load(proto), arrays)
    for name, value in by_onnxruntime(proto, arrays).items():
        assert (actual[name].dtype, actual[name].shape) == (value.dtype, value.shape)
        np.testing.assert_allclose(actual[name], value, 1e-5, 1e-5)


def test_shapes_are_constants():
    """reshape(x, concat(shape(x)[1], -1)) needs nothing computed when it runs"""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s one", "n", axis=0),
        node("Concat", "n minus", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    proto = model(nodes, [tensor("x", ["N", "C"])], one=np.array([1]), minus=np.array([-1]))
    part = first(proto, x=X)
    assert ops(part) == ["View"]
    assert part.rest is None
    same_as_onnxruntime(proto, x=X)


def test_tensors_keep_their_onnx_names():
    part = first(model([node("Relu", "x", "a"), node("Transpose", "a", "y")], [tensor("x", [2, 3])]), x=X)
    assert part.graph.inputs == ("x",)
    assert part.graph.outputs == ("y",)
    assert part.graph.nodes[0].output == "a"
    assert part.graph.nodes[0].origin == ("Relu_0",)


def test_output_behind_an_identity_has_its_name():
    part = first(model([node("Relu", "x", "a"), node("Identity", "a", "y")], [tensor("x", [2, 3])]), x=X)
    assert (part.graph.outputs, part.same) == (("y",), {})


def test_two_names_of_one_tensor():
    nodes = [node("Relu", "x", "a"), node("Identity", "a", "b"), node("Identity", "x", "c")]
    part = first(model(nodes, [tensor("x", [2, 3])], "a b c"), x=X)
    assert part.graph.outputs == ("a",)
    assert part.same == {"b": "a", "c": "x"}


def test_constant_outputs_are_known():
    proto = model([node("Add", "w w", "y"), node("Relu", "x", "z")], [tensor("x", [2, 3])], "y z w", w=X)
    part = first(proto, x=X)
    assert part.graph.outputs == ("z",)
    np.testing.assert_array_equal(part.known["y"], X + X)
    same_as_onnxruntime(proto, x=X)


def test_a_constant_that_would_grow_is_left_to_run():
    """What reads it has its one element in its expression."""
    proto = model(
        [node("Expand", "w s", "b"), node("Add", "x b", "y")],
        [tensor("x", ["N", "M"])],
        w=X[:1, :1],
        s=np.array([3000, 3000]),
    )
    part = first(proto, x=np.zeros((3000, 3000), np.float32))
    assert ops(part) == ["Map"] and not part.graph.constants


def test_random_numbers_are_drawn_when_the_model_runs():
    part = first(model([node("RandomUniform", "", "y", shape=[2])]))
    assert [n.op_type for n in part.host_nodes] == ["RandomUniform"]


def test_unused_outputs_are_not_built():
    nodes = [node("Dropout", "x", "a mask"), node("Relu", "a", "y")]
    assert ops(first(model(nodes, [tensor("x", [2, 3])]), x=X)) == ["Map"]


def test_error_names_the_node():
    proto = model([node("MatMul", "x w", "y", name="dense")], [tensor("x", ["N", "K"])], w=np.zeros((5, 2), np.float32))
    with pytest.raises(BrickError, match=r"MatMul node 'dense' cannot take 'x' float32\[2,3\], 'w' float32\[5,2\]"):
        first(proto, x=X)


@pytest.mark.parametrize(
    ("kind", "attributes", "about"),
    [
        ("Conv", {"strides": [0, 1]}, r"strides \[0, 1\]"),
        ("Conv", {"dilations": [0, 1]}, "dilations"),
        ("Conv", {"strides": [0, 1], "auto_pad": "SAME_UPPER"}, "strides"),
        ("Conv", {"kernel_shape": [5, 5]}, r"kernel_shape \[5, 5\] is not that of the weights, \[3, 3\]"),
        ("Conv", {"auto_pad": "ALL"}, "auto_pad 'ALL'"),
        ("ConvTranspose", {"strides": [0, 1]}, "strides"),
        ("MaxPool", {"kernel_shape": [0, 2]}, r"kernel of \[0, 2\]"),
        ("MaxPool", {"kernel_shape": [2, 2, 2]}, "2 spatial dimensions"),
        ("AveragePool", {"kernel_shape": [2, 2], "strides": [-1, 1]}, "strides"),
        ("SpaceToDepth", {"blocksize": 0}, "blocksize 0"),
        ("DepthToSpace", {"blocksize": 0}, "blocksize 0"),
        ("GroupNormalization", {"num_groups": 0}, "num_groups 0"),
        ("LRN", {"size": 0}, "size 0"),
        ("Transpose", {"perm": [0, 1]}, r"perm \[0, 1\]"),
        ("Split", {"s": [1, 1], "axis": 1}, r"split \[1, 1\] does not add up to the 4"),
        ("Resize", {"f": [1, 1, 0, 2]}, "scale of 0.0"),
    ],
)
def test_attributes_that_make_no_sense_are_named(kind, attributes, about):
    constants = {"w": np.zeros((4, 4, 3, 3), np.float32), "c": np.zeros(4, np.float32)}
    constants |= {"s": np.array(attributes.get("s", [0])), "f": np.array(attributes.get("f", [0]), np.float32)}
    attributes = {name: value for name, value in attributes.items() if name not in "sf"}
    operands = {"Conv": "x w", "ConvTranspose": "x w", "GroupNormalization": "x c c", "Split": "x s", "Resize": "x _ f"}
    made = node(kind, operands.get(kind, "x"), "y z" if kind == "Split" else "y", **attributes)
    proto = model([made], [tensor("x", [1, 4, 6, 6])], "y", opset=21, **constants)
    with pytest.raises(BrickError, match=about):
        first(proto, x=np.zeros((1, 4, 6, 6), np.float32))


def test_types_without_kernels_run_on_the_host_in_one_stage():
    bf16, f32 = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    nodes = [
        node("Cast", "x", "a", to=bf16),
        node("Neg", "a", "b"),
        node("Exp", "b", "c"),
        node("Cast", "c", "y", to=f32),
    ]
    proto = model(nodes, [tensor("x", [2, 3])])
    part = first(proto, x=X)
    assert len(part.host_nodes) == 4
    assert "bfloat16" in part.host_reasons["Neg_1"]
    np.testing.assert_allclose(run_model(load(proto), {"x": X})["y"], np.exp(-X), rtol=5e-2)


def test_host_node_splits_the_model():
    """x ─ relu ─ unique ─ neg: the rest waits for the shape that unique gives"""
    nodes = [node("Relu", "x", "a"), node("Unique", "a", "u"), node("Neg", "u", "y")]
    proto = model(nodes, [tensor("x", [2, 3])])
    part = first(proto, x=X)
    assert (ops(part), part.graph.outputs) == (["Map"], ("a",))
    assert [n.op_type for n in part.host_nodes] == ["Unique"]
    assert part.rest is not None
    assert ([n.op_type for n in part.rest.nodes], part.rest.inputs, part.rest.outputs) == (["Neg"], ("u",), ("y",))
    same_as_onnxruntime(proto, x=X)


@pytest.mark.parametrize(("rows", "outputs"), [(FEW_OPERATIONS, ("y",)), (2, ())])
def test_what_does_not_wait_runs_in_the_first_stage_unless_it_is_too_little(rows, outputs):
    """
    x ─┬─ unique ─ neg ─ (u)
       └─ relu ─ exp ─ (y)
    """
    nodes = [node("Unique", "x", "a"), node("Neg", "a", "u"), node("Relu", "x", "b"), node("Exp", "b", "y")]
    proto = model(nodes, [tensor("x", [rows, 3])], "u y")
    part = first(proto, x=np.zeros((rows, 3), np.float32))
    assert part.graph.outputs == outputs and [n.op_type for n in part.host_nodes] == ["Unique"]
    assert part.rest is not None and part.rest.outputs == (("u",) if outputs else ("u", "y"))
    if not outputs:
        same_as_onnxruntime(proto, x=X)


def test_a_little_that_a_host_node_waits_for_runs_before_it():
    """
    x ─ relu ─ unique ─ neg ─ (u)
     └─ exp ─ (y)
    """
    nodes = [node("Relu", "x", "b"), node("Unique", "b", "a"), node("Neg", "a", "u"), node("Exp", "x", "y")]
    proto = model(nodes, [tensor("x", [2, 3])], "u y")
    assert set(first(proto, x=X).graph.outputs) == {"b", "y"}
    same_as_onnxruntime(proto, x=X)


def test_chain_of_host_nodes_is_one_stage():
    nodes = [
        node("SplitToSequence", "x", "s", axis=0),
        node("SequenceAt", "s k", "a"),
        node("SequenceLength", "s", "n"),
    ]
    proto = model(nodes, [tensor("x", [2, 3])], [tensor("a", None), tensor("n", [], np.int64)], k=np.array(1))
    part = first(proto, x=X)
    assert len(part.host_nodes) == 3
    assert part.rest is None
    same_as_onnxruntime(proto, x=X)


def test_model_of_sequences():
    nodes = [
        node("SplitToSequence", "x", "s", axis=0),
        node(
            "SequenceMap", "s", "t", body=graph([node("Relu", "e", "r")], [tensor("e", [1, 3])], [tensor("r", [1, 3])])
        ),
        node("ConcatFromSequence", "t", "c", axis=0),
        node("Neg", "c", "y"),
    ]
    same_as_onnxruntime(model(nodes, [tensor("x", [2, 3])]), x=X)


def test_value_of_an_input_is_asked_for():
    proto = model([node("Reshape", "x s", "y")], [tensor("x", [2, 3]), tensor("s", [2], np.int64)])
    s = np.array([3, 2])
    part = first(proto, x=X, s=s)
    assert part.need_values == {"s"}
    part = first(proto, {"s": s}, x=X, s=s)
    assert (part.need_values, ops(part), part.graph.inputs) == (frozenset(), ["View"], ("x",))
    same_as_onnxruntime(proto, x=X, s=s)


def test_values_of_all_inputs_are_asked_for_at_once():
    nodes = [node("Reshape", "x s", "a"), node("Expand", "a t", "y")]
    proto = model(nodes, [tensor("x", [2, 3]), tensor("s", [2], np.int64), tensor("t", [2], np.int64)])
    s = np.array([6, 1])
    assert "s" in first(proto, x=X, s=s, t=s).need_values
    same_as_onnxruntime(proto, x=X, s=s, t=np.array([6, 2]))


def test_value_that_the_graph_computes_splits_the_model():
    """reshape(x, relu(s)): relu runs, then the rest is specialized to what it gave"""
    nodes = [node("Relu", "s", "t"), node("Cast", "t", "k", to=onnx.TensorProto.INT64), node("Reshape", "x k", "y")]
    proto = model(nodes, [tensor("x", [2, 3]), tensor("s", [2])])
    s = np.float32([6, 1])
    part = first(proto, x=X, s=s)
    assert part.graph.outputs == ("k",)
    assert part.rest is not None
    assert part.rest.value_inputs == {"k"}
    same_as_onnxruntime(proto, x=X, s=s)


def test_large_values_are_never_bound():
    nodes = [node("Cast", "s", "k", to=onnx.TensorProto.INT64), node("Tile", "x k", "a"), node("Neg", "a", "y")]
    proto = model(nodes, [tensor("x", None), tensor("s", ["N"])])
    part = first(proto, x=X, s=np.zeros(5000, np.float32))
    assert "'k'" in part.host_reasons["Tile_1"]


def test_overridden_initializer_is_an_input():
    proto = model([node("Mul", "x w", "y")], [tensor("x", [2, 3]), tensor("w", [3])], w=np.float32([1, 2, 3]))
    source = load(proto)
    np.testing.assert_allclose(run_model(source, {"x": X})["y"], X * [1, 2, 3])
    np.testing.assert_allclose(run_model(source, {"x": X, "w": np.float32([4, 5, 6])})["y"], X * [4, 5, 6])


def test_function_of_onnx_is_spliced():
    """MeanVarianceNormalization has no builder, but what ONNX defines it by has"""
    x = np.random.default_rng(1).standard_normal((1, 2, 4, 4)).astype(np.float32)
    proto = model([node("MeanVarianceNormalization", "x", "y")], [tensor("x", [1, 2, 4, 4])])
    assert first(proto, x=x).host_nodes == ()
    same_as_onnxruntime(proto, x=x)


def test_builder_that_gives_up_halfway_leaves_nothing(monkeypatch):
    def halfway(b: builder.Builder, n: builder.OnnxNode) -> str:
        b.emit(RELU, n.inputs[0])
        b.constant(X)
        raise Unsupported("it is a test")

    monkeypatch.setitem(builder._BUILDERS, ("", "Neg"), halfway)
    part = first(model([node("Exp", "x", "a"), node("Neg", "x", "b")], [tensor("x", [2, 3])], "a b"), x=X)
    assert (ops(part), part.graph.constants) == (["Map"], {})
    assert part.host_reasons == {"Neg_1": "it is a test"}


def test_output_that_a_builder_leaves_out_puts_the_node_on_the_host(monkeypatch):
    monkeypatch.setitem(builder._BUILDERS, ("", "TopK"), lambda b, n: (b.emit(RELU, n.inputs[0]), ""))
    nodes = [node("TopK", "x k", "v i")]
    assert first(model(nodes, [tensor("x", [2, 3])], "v", k=np.array([2])), x=X).host_nodes == ()
    part = first(model(nodes, [tensor("x", [2, 3])], "v i", k=np.array([2])), x=X)
    assert "'i'" in part.host_reasons["TopK_0"]


def test_optional_input_of_the_model():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [2, 3]))
    nodes = [node("OptionalHasElement", "o", "h"), node("Not", "h", "y")]
    source = load(model(nodes, [helper.make_value_info("o", kind)], unknown("y"), opset=18))
    assert run_model(source, {"o": None})["y"] == [True]
    assert run_model(source, {"o": X})["y"] == [False]
