"""Models that ONNX's checker lets pass, with messages and nodes that make no sense: all are refused in one line."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.fuzz.case_runner import CaseRunner
from tests.support.graphs.onnx_models import graph, model, node, tensor

IMAGE = [tensor("x", [1, 4, 8, 8])]
PAIR = [tensor("x", [2])]
SIGNAL = [tensor("x", [1, 16, 1])]
RECURRENT = np.ones((1, 2, 2), np.float32)
KERNEL = np.ones((4, 4, 3, 3), np.float32)


def n(value: int) -> np.ndarray:
    return np.int64(value)


def calling(*bodies: tuple[str, list[str]]) -> onnx.ModelProto:
    """A model that calls the first of these functions, each a name and the functions that it calls in turn."""
    proto = model([helper.make_node(bodies[0][0], ["x"], ["y"], domain="own")], PAIR)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    proto.opset_import.append(imports[1])
    for name, called in bodies:
        steps = [f"t{k}" for k in range(len(called))]
        nodes = [
            helper.make_node(op, [source], [target], domain="" if op == "Relu" else "own")
            for op, source, target in zip(called, ["a", *steps], steps)
        ]
        proto.functions.append(helper.make_function("own", name, ["a"], [steps[-1]], nodes, imports))
    return proto


def nested(depth: int) -> onnx.ModelProto:
    """Branches inside branches."""
    body = other = graph([node("Relu", "x", "t")], outputs="t")
    for _ in range(depth):
        body = graph([node("If", "c", "t", then_branch=body, else_branch=other)], outputs="t")
    return model([*body.node], [*PAIR, tensor("c", [], bool)], "t")


def on_a_sequence() -> onnx.ModelProto:
    """A branch taken where a sequence is true."""
    either = graph([node("Neg", "x", "t")], outputs="t")
    nodes = [node("SequenceConstruct", "x", "c"), node("If", "c", "y", then_branch=either, else_branch=either)]
    return model(nodes, PAIR)


def sparse(indices: list[int], dims: list[int], shape: tuple[int, ...] | None = None) -> onnx.ModelProto:
    """A product with a sparse matrix of two values at these indices."""
    values = helper.make_tensor("w", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    places = helper.make_tensor("i", onnx.TensorProto.INT64, shape or [len(indices)], indices)
    proto = model([node("MatMul", "x w", "y")], [tensor("x", [2, 2])])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, dims))
    return proto


def untyped_sparse() -> onnx.ModelProto:
    proto = sparse([0, 1], [2, 2])
    proto.graph.sparse_initializer[0].values.ClearField("data_type")
    return proto


def of_type(number: int) -> onnx.ModelProto:
    proto = model([node("Relu", "x", "y")], PAIR)
    proto.graph.input[0].type.tensor_type.elem_type = number
    return proto


def with_attributes(op: str, *attributes: onnx.AttributeProto) -> onnx.ModelProto:
    proto = model([node(op, "x", "y")], IMAGE)
    proto.graph.node[0].attribute.extend(attributes)
    return proto


def without_utf8() -> bytes:
    data = model([node("Relu", "x", "y", name="rrrr")], PAIR).SerializeToString()
    return data.replace(b"rrrr", b"\xff\xfe\xfd\xfc")


BROKEN = {
    "group": (model([node("Conv", "x w", "y", group=0)], IMAGE, w=KERNEL), "group 0"),
    "transposed group": (model([node("ConvTranspose", "x w", "y", group=0)], IMAGE, w=KERNEL), "group 0"),
    "no matrices": (model([node("Gemm", "x x", "y")], PAIR), "must be matrices"),
    "no frame": (model([node("STFT", "x s _ l", "y")], SIGNAL, s=n(1), l=n(0)), "0 samples"),
    "no step": (model([node("STFT", "x s _ l", "y")], SIGNAL, s=n(0), l=n(4)), "0 apart"),
    "no transform": (model([node("DFT", "x l", "y")], SIGNAL, l=n(0)), "0 samples"),
    "scalars": (model([node("Concat", "x x", "y", axis=0)], [tensor("x", [])]), "rank 0"),
    "left out": (model([node("Concat", "x _", "y", axis=0)], PAIR), "left out"),
    "condition": (model([node("Where", "c x x", "y")], [tensor("c", [2], np.int8), *PAIR]), "tensor(bool)"),
    "two types": (model([node("Add", "x z", "y")], [*PAIR, tensor("z", [2], np.int32)]), "one element type"),
    "rank": (model([node("Relu", "x", "y")], [tensor("x", [1] * 33)]), "33 dimensions"),
    "batches": (
        model([node("NonZero", "x", "i"), node("GatherND", "x i", "y", batch_dims=-1000)], [tensor("x", [2, 2])]),
        "batch_dims -1000",
    ),
    "switch": (model([node("ReduceMax", "x", "y", keepdims=2)], PAIR), "keepdims 2 is outside 0 to 1"),
    "untyped condition": (on_a_sequence(), "If node"),
    "output padding": (
        model([node("ConvTranspose", "x w", "y", output_padding=[0, 1])], IMAGE, w=KERNEL),
        "output_padding [0, 1] must be less",
    ),
    "parts": (
        model([node("Split", "x", "y z", num_outputs=3)], IMAGE, opset=18),
        "num_outputs is 3, the node has 2",
    ),
    "scales": (model([node("Upsample", "x s", "y")], IMAGE, opset=9, s=np.ones((4, 0), np.float32)), "Upsample node"),
    "norm": (model([node("GlobalLpPool", "x", "y", p=0)], IMAGE), "at least 1"),
    "number of tops": (
        model([node("TopK", "x k", "v y")], [tensor("x", [4])], k=np.array([1 << 40])),
        "is asked for 1099511627776 of 4 elements",
    ),
    "axes twice": (model([node("Unsqueeze", "x a", "y")], PAIR, a=np.array([1, 1])), "name one axis twice"),
    "flattened": (model([node("Flatten", "x", "y", axis=-2)], PAIR), "axis -2 is outside -1 to 1"),
    "ranks": (
        model([node("GatherElements", "x i", "y")], [tensor("x", [2, 3])], i=np.zeros(0, np.int64)),
        "indices of 1 dimensions",
    ),
    "word": (model([node("DepthToSpace", "x", "y", blocksize=2, mode="CDR")], IMAGE), "'CDR' is none of DCR, CRD"),
    "twice": (with_attributes("Softmax", *[helper.make_attribute("axis", k) for k in (1, 2)]), "given twice"),
    "no name": (with_attributes("Softmax", helper.make_attribute("", 1)), "without a name"),
    "kernel": (
        model([node("MaxPool", "x", "y", auto_pad="SAME_UPPER", kernel_shape=[3, (1 << 63) - 1])], IMAGE),
        "larger than any tensor",
    ),
    "tile": (model([node("Tile", "x r", "y")], PAIR, r=np.array([-1])), "at least 0"),
    "element type": (of_type(99), "type 99"),
    "own call": (calling(("F", ["F"])), "calls itself"),
    "a circle": (calling(("F", ["G"]), ("G", ["H"]), ("H", ["F"])), "calls itself"),
    "doubled": (calling(*((f"F{k}", [f"F{k + 1}"] * 2) for k in range(31)), ("F31", ["Relu"])), "2147483648 nodes"),
    "nested": (nested(30), "nested"),
    "sparse index": (sparse([0, 4], [2, 2]), "not positions"),
    "negative index": (sparse([-1, 2], [2, 2]), "not positions"),
    "sparse rows": (sparse([0, 0, 0, 1, 1, 1], [2, 2], (2, 3)), "not positions"),
    "sparse extents": (sparse([0, 1], [-2, 2]), "negative"),
    "sparse scalar": (sparse([], [], (2, 0)), "not positions"),
    "no sequence": (
        model([node("Optional", "x", "o"), node("SequenceLength", "o", "y")], PAIR),
        "takes a sequence, and 'o' is a tensor",
    ),
    "sparse type": (untyped_sparse(), "type 0"),
    "steps": (model([node("Slice", "x o o o s", "y")], PAIR, o=np.array([0]), s=np.zeros(0, np.int64)), "0 steps"),
    "cropped": (model([node("CenterCropPad", "x s", "y")], PAIR, s=np.array([-3]), opset=18), "extents [-3]"),
    "scalar's axis": (model([node("ReduceMax", "x", "y", axes=[0])], [tensor("x", [])]), "axis 0 is outside"),
    "cut scalar": (
        model([node("Slice", "x o e a", "y")], [tensor("x", [])], o=np.array([0]), e=np.array([1]), a=np.array([0])),
        "axis 0 is outside",
    ),
    "crops": (model([node("Pad", "x p", "y")], PAIR, p=np.array([-3, 1 << 46])), "crop more than there is"),
    "split scalar": (model([node("Split", "x", "y z")], [tensor("x", [])], "y z"), "scalar"),
    "hidden size": (
        model([node("RNN", "x w r", "y", hidden_size=5)], [tensor("x", [1, 1, 2])], w=RECURRENT, r=RECURRENT),
        "hidden_size is 5",
    ),
    "text": (without_utf8(), "UTF-8"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_refused(worker: CaseRunner, name: str):
    proto, words = BROKEN[name]
    word, text = worker.run((proto if isinstance(proto, bytes) else proto.SerializeToString(), "cpu"))
    assert word == "refused", text
    assert words in text and "defect" not in text, text


def test_functions_that_call_others_run(worker: CaseRunner):
    proto = calling(("F", ["G", "G"]), ("G", ["Relu", "Relu"]))
    assert worker.run((proto.SerializeToString(), "reference")) == ("ran", "")
