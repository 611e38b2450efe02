"""`InferenceSession` beside ONNX Runtime's: what it tells of a model, how it is fed, and what it says of nonsense."""

from __future__ import annotations

import queue

import numpy as np
import onnx
import onnxruntime
import pytest

import brickrt
import brickrt.onnxruntime as ort
from brickrt.graph.errors import BrickError
from tests.support.graphs.onnx_models import model, node, tensor


def proto() -> onnx.ModelProto:
    """x [N, 3], b = 1 → x + b → y, as integers → k"""
    nodes = [node("Add", "x b", "y"), node("Cast", "y", "k", to=onnx.TensorProto.INT64)]
    inputs = [tensor("x", ("N", 3)), tensor("b", (3,))]
    made = model(nodes, inputs, [tensor("y", ("N", 3)), tensor("k", ("N", 3), np.int64)], b=np.ones(3, np.float32))
    made.producer_name, made.model_version, made.doc_string, made.domain = "tests", 4, "what it is", "org.example"
    made.graph.doc_string = "an addition"
    made.metadata_props.add(key="names", value="{0: 'cat'}")
    return made


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(proto().SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def theirs() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(proto().SerializeToString(), providers=["CPUExecutionProvider"])


def sample(rows: int = 2) -> np.ndarray:
    return np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)


def told(args) -> list[tuple]:
    return [(arg.name, arg.shape, arg.type) for arg in args]


def test_what_is_told_of_a_model(session, theirs):
    assert told(session.get_inputs()) == told(theirs.get_inputs()) == [("x", ["N", 3], "tensor(float)")]
    assert told(session.get_outputs()) == told(theirs.get_outputs())
    assert told(session.get_overridable_initializers()) == told(theirs.get_overridable_initializers())
    mine, other = session.get_modelmeta(), theirs.get_modelmeta()
    fields = "producer_name graph_name domain description graph_description version custom_metadata_map".split()
    assert [getattr(mine, name) for name in fields] == [getattr(other, name) for name in fields]
    assert session.get_providers() == theirs.get_providers() == ["CPUExecutionProvider"]
    assert session.get_session_options().intra_op_num_threads == session.runtime.threads == 1
    assert list(session.get_provider_options()) == ["CPUExecutionProvider"]


def test_sequences_and_free_dimensions_are_told():
    nodes = [node("SequenceConstruct", "x", "s"), node("Identity", "x", "y")]
    outputs = [
        onnx.helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, None),
        tensor("y", (None, "N")),
    ]
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("N", 7)
    session = ort.InferenceSession(model(nodes, [tensor("x", (None, "N"))], outputs), options)
    assert told(session.get_inputs()) == [("x", [None, 7], "tensor(float)")]
    assert [arg.type for arg in session.get_outputs()] == ["seq(tensor(float))", "tensor(float)"]
    assert np.array_equal(session.run(["s"], {"x": np.ones((1, 7), np.float32)})[0][0], np.ones((1, 7)))


def test_runs_are_those_of_onnxruntime(session, theirs):
    feed = {"x": sample(), "b": np.full(3, 0.5, np.float32)}
    for names in (None, [], ["k"], ["k", "y"]):
        for given in (feed, {"x": sample(5)}):
            mine, other = session.run(names, given), theirs.run(names, given)
            assert len(mine) == len(other) and all(map(np.array_equal, mine, other))
            assert [a.dtype for a in mine] == [a.dtype for a in other]
    assert np.array_equal(session.run(["y"], {"x": [[1, 2, 3]]})[0], theirs.run(["y"], {"x": [[1, 2, 3]]})[0])


def test_values_and_bindings(session):
    x, want = sample(), sample() + 1
    value = ort.OrtValue.ortvalue_from_numpy(x, "cpu", 0)
    assert (value.shape(), value.data_type(), value.element_type()) == ([2, 3], "tensor(float)", 1)
    assert value.data_ptr() == x.ctypes.data and value.is_tensor() and value.device_name() == "cpu"
    [y] = session.run_with_ort_values(["y"], {"x": value})
    assert np.array_equal(y.numpy(), want)
    made, room = np.zeros((2, 3), np.float32), ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, made.shape, made.ctypes.data)
    binding.bind_ortvalue_output("k", room)
    session.run_with_iobinding(binding)
    assert np.array_equal(made, want) and np.array_equal(room.numpy(), want)
    binding.clear_binding_outputs()
    binding.bind_cpu_input("x", x + 1)
    binding.bind_output("k")
    session.run_with_iobinding(binding)
    [k] = binding.copy_outputs_to_cpu()
    assert np.array_equal(k, want + 1) and np.array_equal(binding.get_outputs()[0].numpy(), k)
    value.update_inplace(x * 0)
    assert not x.any()


def test_bits_of_another_type():
    bits = np.array([0x3F80, 0x4000], np.uint16)  # 1 and 2 in bfloat16
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
    assert value.element_type() == onnx.TensorProto.BFLOAT16 and value.data_ptr() == bits.ctypes.data
    assert value.numpy().astype(np.float32).tolist() == [1, 2]
    with pytest.raises(BrickError, match="do not hold"):
        ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.FLOAT)


def test_values_go_to_torch_without_a_copy():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = sample()
    there = torch.from_dlpack(ort.OrtValue.ortvalue_from_numpy(x)._ortvalue.to_dlpack())
    assert there.data_ptr() == x.ctypes.data and np.array_equal(there.numpy(), x)


def test_texts_come_out_as_objects():
    made = model([node("Identity", "x", "y")], [tensor("x", ("N",), object)], [tensor("y", ("N",), object)])
    for there in (ort, onnxruntime):
        [y] = there.InferenceSession(made.SerializeToString()).run(None, {"x": np.array(["a", "ç"])})
        assert y.dtype == object and y.tolist() == ["a", "ç"]


def test_other_values_of_a_constant():
    given, results = np.array([7, 8, 9], np.float32), []
    for there in (ort, onnxruntime):
        options = there.SessionOptions()
        value = there.OrtValue.ortvalue_from_numpy(given)
        options.add_initializer("b", value)
        made = proto()
        del made.graph.input[1]
        session = there.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results.append(session.run(["y"], {"x": sample()})[0])
    assert np.array_equal(*results) and np.array_equal(results[0], sample() + given)
    for name, wrong in (("w", given), ("b", given[:2])):
        options = ort.SessionOptions()
        options.add_initializer(name, wrong)
        with pytest.raises(BrickError, match=f"initializer '{name}'"):
            ort.InferenceSession(proto().SerializeToString(), options)


def test_what_has_no_effect_is_there(capsys):
    ort.preload_dlls(cuda=False)
    ort.print_debug_info()
    assert "in place of onnxruntime" in capsys.readouterr().out


def test_a_run_in_another_thread(session):
    done: queue.Queue = queue.Queue()
    session.run_async(["y"], {"x": sample()}, lambda *got: done.put(got), "mine")
    results, mine, error = done.get(timeout=60)
    assert np.array_equal(results[0], sample() + 1) and (mine, error) == ("mine", "")
    session.run_async(None, {}, lambda *got: done.put(got), None)
    assert "input 'x'" in done.get(timeout=60)[2]


def test_nonsense_is_one_line(session):
    x = sample()
    wrong = {
        r"input 'x' float32\[N,3\] is missing": (None, {}),
        "input 'x' has 3 dimensions": (None, {"x": x[None]}),
        "input 'x' is float64, the model takes float32": (None, {"x": x.astype("f8")}),
        "dimension 1 must be 3": (None, {"x": x[:, :2]}),
        "input 'z' is not one of the model's": (None, {"x": x, "z": x}),
        "output 'w' is not one of the model's: it gives 'y', 'k'": (["w"], {"x": x}),
        "inputs are a list: give them by name": (None, [x]),
    }
    for message, (names, feed) in wrong.items():
        with pytest.raises(BrickError, match=message) as caught:
            session.run(names, feed)
        assert "\n" not in str(caught.value)
    with pytest.raises(BrickError, match="no such file"):
        ort.InferenceSession("nowhere.onnx")


def test_options_and_providers(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(proto().SerializeToString())
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(AttributeError):
        options.intra_op_threads = 1
    assert "CPUExecutionProvider" in ort.get_available_providers() and ort.get_device() in ("CPU", "GPU")
    with pytest.warns(UserWarning, match="provider 'TensorrtExecutionProvider' is not here"):
        session = ort.InferenceSession(
            path, options, ["TensorrtExecutionProvider", ("CPUExecutionProvider", {"arena": 1})], unknown=1
        )
    assert session.get_provider_options() == {"CPUExecutionProvider": {"arena": "1"}}
    session.set_providers(["CPUExecutionProvider"])
    for bad, message in (("CPU", "providers is a str"), ([3], "provider 3 is neither")):
        with pytest.raises(BrickError, match=message):
            ort.InferenceSession(path, providers=bad)
    options.intra_op_num_threads = -1
    with pytest.raises(BrickError, match="intra_op_num_threads -1 is impossible"):
        ort.InferenceSession(path, options)
    own = onnxruntime.SessionOptions()
    own.intra_op_num_threads = 2
    assert brickrt.InferenceSession(path, own).runtime.threads == 2


def test_everything_that_sessions_have_there_is_here():
    """But for what concerns devices and plug-ins of its own."""
    internal = ("epdevices", "graph_assignment", "captured_graph", "set_tuning", "run_with_ortvaluevector")
    for name in ("InferenceSession", "IOBinding", "SessionOptions", "RunOptions", "NodeArg", "ModelMetadata"):
        here = dir(getattr(ort, name)) + list(getattr(getattr(ort, name), "__dataclass_fields__", ()))
        there = [n for n in dir(getattr(onnxruntime, name)) if n[0] != "_" and not any(p in n for p in internal)]
        skipped = {
            "SessionOptions": {
                n for n in there if any(p in n for p in ("in_memory", "devices", "policy", "ep_context"))
            },
            "InferenceSession": {"create_ortvalue_from_shape_and_type"},
        }.get(name, set())
        assert set(there) - set(here) - skipped == set(), name
