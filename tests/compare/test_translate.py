"""Networks given to other array libraries compute what ONNX's definition says."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from brickrt import Runtime
from brickrt.compare.translate import network

X4, X5, X3 = (2, 6, 8, 9), (1, 4, 5, 6, 7), (2, 4, 11)
CASES: list[tuple[str, dict, tuple, list]] = [
    ("Conv", {"pads": [1, 0, 2, 1], "strides": [2, 1]}, X4, [(8, 6, 3, 3), (8,)]),
    ("Conv", {"group": 3, "dilations": [1, 2]}, X4, [(6, 2, 3, 3)]),
    ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, X4, [(5, 6, 3, 4)]),
    ("Conv", {"pads": [1, 1, 1, 1, 1, 1]}, X5, [(3, 4, 3, 3, 3), (3,)]),
    ("Conv", {"pads": [2, 0]}, X3, [(5, 4, 3)]),
    ("ConvTranspose", {"strides": [2, 2], "pads": [1, 1, 0, 1], "output_padding": [1, 0]}, X4, [(6, 4, 3, 3), (4,)]),
    ("ConvTranspose", {"group": 2, "dilations": [2, 1]}, X4, [(6, 2, 3, 2)]),
    ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}, X4, []),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, X4, []),
    ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 1, 0, 1], "count_include_pad": 1}, X4, []),
    ("GlobalAveragePool", {}, X5, []),
    ("ReduceMean", {"axes": [1, 3], "keepdims": 0}, X4, []),
    ("Softmax", {"axis": 1}, X4, []),
    ("LayerNormalization", {"axis": -1, "epsilon": 1e-4}, X4, [(9,), (9,)]),
    ("InstanceNormalization", {}, X4, [(6,), (6,)]),
    ("Gemm", {"transB": 1, "alpha": 0.5, "beta": 2.0}, (3, 5), [(4, 5), (4,)]),
    ("MatMul", {}, X4, [(9, 5)]),
    ("Reshape", {}, X4, [np.array([0, 3, -1, 9])]),
    ("Flatten", {"axis": 2}, X4, []),
    ("Unsqueeze", {}, X3, [np.array([0, -1])]),
    ("Squeeze", {}, (1, 3, 1, 2), [np.array([0])]),
    ("Transpose", {"perm": [0, 2, 3, 1]}, X4, []),
    ("Expand", {}, (1, 6, 1, 9), [np.array([2, 1, 8, 9])]),
    ("Tile", {}, X3, [np.array([1, 3, 2])]),
    ("Slice", {}, X4, [np.array([5, 1]), np.array([-20, 7]), np.array([1, 2]), np.array([-2, 3])]),
    ("Gather", {"axis": 1}, X4, [np.array([[0, -1], [2, 2]])]),
    ("Pad", {"mode": "reflect"}, X4, [np.array([0, 0, 1, 2, 0, 0, 3, 1])]),
    ("Pad", {}, X4, [np.array([0, 1, 1, 2, 0, 0, 3, 1]), np.float32(0.5)]),
    ("DepthToSpace", {"blocksize": 2}, (1, 8, 3, 4), []),
    ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, (1, 8, 3, 4), []),
    ("SpaceToDepth", {"blocksize": 2}, (1, 3, 4, 6), []),
    ("Resize", {"mode": "nearest"}, X4, [np.zeros(0, np.float32), np.array([1, 1, 2, 3], np.float32)]),
    ("Clip", {}, X4, [np.float32(-0.5), np.float32(0.25)]),
    ("HardSigmoid", {"alpha": 0.3}, X4, []),
    ("HardSwish", {}, X4, []),
    ("Gelu", {}, X4, []),
    ("LeakyRelu", {"alpha": 0.2}, X4, []),
    ("Where", {}, (3, 4), []),
]
OPSETS = {"ReduceMean": 17}


def model_of(kind: str, attributes: dict, x: tuple, constants: list) -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    arrays = [
        c if isinstance(c, np.ndarray | np.generic) else rng.standard_normal(c).astype(np.float32) for c in constants
    ]
    names = [f"c{k}" for k in range(len(arrays))]
    if kind == "Resize":
        names[0], arrays = "roi", arrays
    inputs = ["x", *names]
    if kind == "Where":
        arrays, names = [np.array([True, False, True, True])], ["c0"]
        inputs = ["c0", "x", "x"]
    nodes = [helper.make_node(kind, inputs, ["y"], **attributes)]
    held = [numpy_helper.from_array(np.asarray(a), name) for name, a in zip(names, arrays, strict=True)]
    ends = [helper.make_tensor_value_info("x", 1, x)], [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "one", *ends, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSETS.get(kind, 22))], ir_version=10)


def by_torch(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: it is compared where it is present")
    from brickrt.compare.torch_backend import TorchNetwork

    with torch.inference_mode():
        return TorchNetwork(network(model))(torch.from_numpy(x))[0].numpy()


def by_trace(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """TorchScript, which has tensors for the extents of what it traces."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: it is compared where it is present")
    from brickrt.compare.torch_backend import TorchNetwork

    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = TorchNetwork(network(model))
        return torch.jit.trace(module, [torch.from_numpy(x)], check_trace=False)(torch.from_numpy(x))[0].numpy()


def by_jax(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    pytest.importorskip("jax", reason="JAX is not installed: it is compared where it is present")
    from brickrt.compare.jax_backend import jax_network

    return np.asarray(jax_network(network(model))(x)[0])


@pytest.mark.parametrize("library", [by_torch, by_trace, by_jax])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_operators(library, case):
    model = model_of(*case)
    x = np.random.default_rng(0).standard_normal(case[2]).astype(np.float32)
    (want,) = Runtime(model, device="reference").execute({"x": x}).values()
    np.testing.assert_allclose(library(model, x), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("library", [by_torch, by_trace])
def test_shape_arithmetic_stays_on_the_host(library):
    """Shape → Gather → Concat → Reshape, as exporters write it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    held = [numpy_helper.from_array(np.array([v]), name) for name, v in (("zero", 0), ("rest", -1))]
    ends = [helper.make_tensor_value_info("x", 1, X4)], [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "shapes", *ends, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    x = np.random.default_rng(0).standard_normal(X4).astype(np.float32)
    assert np.array_equal(library(model, x), x.reshape(2, -1))


def test_what_has_no_translation_is_named():
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, X3)], []
    )
    with pytest.raises(LookupError, match="no translation of LSTM"):
        network(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
