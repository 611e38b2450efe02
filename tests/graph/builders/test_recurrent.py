"""LSTM, GRU and RNN as brick operators, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from brickrt import Runtime
from brickrt.graph.errors import Unsupported
from brickrt.graph.onnx_import.source import load
from brickrt.graph.specialize.specialize import specialize
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.types import TensorType
from tests.support.graphs.builders_harness import assert_close, run_model
from tests.support.graphs.onnx_models import by_onnxruntime
from tests.support.graphs.recurrent_models import GATES, recurrent_model

DIRECTIONS = ["forward", "reverse", "bidirectional"]
LAYERS = [(op_type, {}) for op_type in GATES] + [("GRU", {"linear_before_reset": 1})]


def compare(op_type: str, **how: object) -> None:
    """Runs a model of `recurrent_model` by its builder and the definitions of what that emits."""
    model, feeds = recurrent_model(op_type, **how)
    want = by_onnxruntime(model, feeds)
    assert_close(run_model(model, feeds), [want[output.name] for output in model.graph.output], 1e-5)


@pytest.mark.parametrize(("op_type", "how"), LAYERS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("optional", [(), ("B", "h", "c"), ("B", "h", "c", "lengths")], ids=len)
def test_directions_states_and_lengths(op_type, how, direction, optional):
    compare(op_type, directions=1 + (direction == "bidirectional"), optional=optional, direction=direction, **how)


@pytest.mark.parametrize(
    "name", "Relu Softsign Softplus Elu ThresholdedRelu Sigmoid Tanh LeakyRelu HardSigmoid ScaledTanh Affine".split()
)
def test_activations(name):
    compare("RNN", activations=[name], activation_alpha=[0.7], activation_beta=[0.4], optional=("B", "h"))


def test_activations_take_their_parameters_in_turn():
    names = ["HardSigmoid", "ScaledTanh", "LeakyRelu"]
    compare("LSTM", activations=names, activation_alpha=[0.3, 1.1, 0.05], activation_beta=[0.4, 0.9])


@pytest.mark.parametrize(("op_type", "how"), [layer for layer in LAYERS if layer[0] != "RNN"])
def test_clip(op_type, how):
    compare(op_type, clip=0.5, optional=("B",), **how)


@pytest.mark.parametrize("linear", [0, 1])
def test_activations_of_a_gru(linear):
    how = {"activation_alpha": [0.3, 1.1], "activation_beta": [0.4, 0.9], "linear_before_reset": linear}
    compare("GRU", activations=["HardSigmoid", "ScaledTanh"], optional=("B", "h"), **how)


def test_coupled_gates():
    compare("LSTM", input_forget=1, optional=("B",))


@pytest.mark.parametrize(
    ("op_type", "how", "why"),
    [
        ("LSTM", {"optional": ("P",)}, "peepholes"),
        ("RNN", {"direction": "bidirectional", "directions": 2, "activations": ["Tanh", "Relu"]}, "differ"),
    ],
)
def test_what_the_host_computes(op_type, how, why):
    with pytest.raises(Unsupported, match=why):
        run_model(*recurrent_model(op_type, **how))


@pytest.mark.parametrize(("op_type", "how"), LAYERS)
def test_devices_without_kernels_leave_layers_to_the_host(op_type, how):
    model, feeds = recurrent_model(op_type, **how)
    types = {name: TensorType(array.shape, array.dtype) for name, array in feeds.items()}
    part = specialize(first_stage(load(model)), types, {})
    assert [node.op_type for node in part.host_nodes] == [op_type]
    assert not part.graph.nodes


def network(direction: str) -> onnx.ModelProto:
    """Columns of an image through two LSTM layers, of which the second one begins with lengths, as text is read."""
    rng, d, hidden = np.random.default_rng(0), 1 + (direction == "bidirectional"), 20
    shapes = {"w": (8, 3, 3, 3), "W": (d, 4 * hidden, 48), "R": (d, 4 * hidden, hidden), "B": (d, 8 * hidden)}
    shapes |= {"V": (d, 4 * hidden, d * hidden), "p": (0,)}
    constants = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32) / 8, n) for n, s in shapes.items()]
    constants[-1] = numpy_helper.from_array(np.array([0, 0, d * hidden]), "p")
    constants.append(numpy_helper.from_array(np.array([0, 48, -1]), "q"))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 1]),
        helper.make_node("Reshape", ["c", "q"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 1]),
        helper.make_node("LSTM", ["t", "W", "R", "B"], ["y"], hidden_size=hidden, direction=direction),
        helper.make_node("Transpose", ["y"], ["yt"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["yt", "p"], ["z"]),
        helper.make_node("LSTM", ["z", "V", "R", "B", "n"], ["o", "h", "k"], hidden_size=hidden, direction=direction),
    ]
    ends = [("x", 1, ["b", 3, 12, "w"]), ("n", 6, ["b"]), ("o", 1, None), ("h", 1, None), ("k", 1, None)]
    values = [helper.make_tensor_value_info(*end) for end in ends]
    graph = helper.make_graph(nodes, "reads", values[:2], values[2:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_a_network_of_any_length_runs_on_kernels(direction):
    model, rng = network(direction), np.random.default_rng(1)
    runtime, alone = (Runtime(model, device="cpu", threads=threads) for threads in (2, 1))
    for batch, width in ((1, 9), (3, 14), (2, 1)):
        feeds = {"x": rng.standard_normal((batch, 3, 12, width), np.float32)}
        feeds["n"] = rng.integers(0, width + 1, batch).astype(np.int32)
        got, want = runtime.execute(feeds), by_onnxruntime(model, feeds)
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, 1e-4, 1e-5)
        again = alone.execute(feeds)
        assert all(np.array_equal(got[name], again[name]) for name in want)
    assert not runtime.stats.host_nodes


def bytes_model(op_type: str, how: dict, dtype: type, axis: int | None, rounded: bool) -> tuple[onnx.ModelProto, dict]:
    """DequantizeLinear of both weights ─ a layer in both directions, which reads x, or `rounded`: x ─ Q ─ DQ."""
    rng, (d, hidden, width), info = np.random.default_rng(3), (2, 21, 8), np.iinfo(dtype)
    shape = () if axis is None else (d,) if axis == 0 else (GATES[op_type] * hidden,)
    tensors = {name: rng.integers(info.min // 2, info.max // 2 + 1, (d, GATES[op_type] * hidden, columns)).astype(dtype)
               for name, columns in (("w", width), ("r", hidden))}  # fmt: skip
    for name in ("w", "r"):
        tensors[f"{name}s"] = rng.uniform(0.001, 0.004, shape).astype(np.float32)
        tensors[f"{name}z"] = np.full(shape, 3 + (info.max + info.min + 1) // 2 if axis != 1 else 60, dtype)
    tensors |= {"b": rng.standard_normal((d, 2 * GATES[op_type] * hidden)).astype(np.float32) / 4}
    tensors |= {"xs": np.float32(0.03), "xz": np.uint8(120)}
    along = {"axis": axis} if axis is not None else {}
    nodes = [helper.make_node("DequantizeLinear", [k, f"{k}s", f"{k}z"], [f"{k}f"], **along) for k in ("w", "r")]
    if rounded:
        nodes.append(helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]))
        nodes.append(helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xf"]))
    given, outputs = ["xf" if rounded else "x", "wf", "rf", "b"], ["y", "h"]
    nodes.append(helper.make_node(op_type, given, outputs, hidden_size=hidden, direction="bidirectional", **how))
    values = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    x = helper.make_tensor_value_info("x", 1, [None, None, width])
    constants = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "bytes", [x], values, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tensors


@pytest.mark.parametrize(("op_type", "how"), LAYERS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("rounded", [False, True])
def test_weights_of_bytes_stay_bytes(op_type, how, dtype, axis, rounded):
    """With zero points that are not 0; unsigned ones of which some are no signed bytes less theirs become floats."""
    model, tensors = bytes_model(op_type, how, dtype, axis, rounded)
    runtime = Runtime(model, device="cpu", threads=1)
    for time, batch in ((4, 1), (3, 5)):
        feeds = {"x": np.random.default_rng(time).standard_normal((time, batch, 8), np.float32)}
        got = runtime.execute(feeds)
        for name, want in by_onnxruntime(model, feeds).items():
            np.testing.assert_allclose(got[name], want, 2e-5, 3e-6)
    assert not runtime.stats.host_nodes
    kept = [array.dtype for plan in runtime.plans for array in plan.graph.constants.values() if array.ndim == 3]
    fits = all(np.abs(tensors[k].astype(int) - tensors[f"{k}z"].flat[0]).max() < 128 for k in ("w", "r"))
    assert (np.dtype(np.int8) in kept) == fits


@pytest.mark.parametrize("strategy", ["padded", "memoized"])
@pytest.mark.parametrize("op_type", ["LSTM", "GRU"])
def test_forced_bricks_leave_time_whole(strategy, op_type):
    model, feeds = recurrent_model(op_type)
    want = by_onnxruntime(model, feeds)
    found = Runtime(model, device="cpu", strategy=strategy, brick=2, threads=1).execute(feeds)
    for name, result in found.items():
        np.testing.assert_allclose(result, want[name], rtol=0, atol=1e-5, err_msg=name)
