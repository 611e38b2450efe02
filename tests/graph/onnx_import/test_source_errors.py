"""What cannot be imported is refused in one line that names the thing and the fix."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper

from brickrt.graph.errors import BrickError, Defect, ModelError
from brickrt.graph.onnx_import.check_model import check_header
from brickrt.graph.onnx_import.source import load
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import graph, model, node, tensor

X = [tensor("x", [2])]


def relu(opset: int = 17) -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], X, opset=opset)


def without_opsets() -> onnx.ModelProto:
    proto = relu()
    del proto.opset_import[:]
    return proto


def foreign(domain: str) -> onnx.ModelProto:
    proto = model([helper.make_node("FusedNothing", ["x"], ["y"], domain=domain, name="f")], X)
    proto.opset_import.append(helper.make_opsetid(domain, 1))
    return proto


def in_a_branch() -> onnx.ModelProto:
    branch = graph([node("Nope", "x", "t")], outputs="t")
    return model([node("If", "c", "y", then_branch=branch, else_branch=branch)], [*X, tensor("c", [], bool)])


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (b"hello, I am no model", ["not an ONNX model"]),
        (b"", ["not an ONNX model"]),
        (model([node("Relu", "x", "y")], X, w=np.zeros(1000)).SerializeToString()[:-500], ["cut off"]),
        (onnx.ModelProto(), ["not an ONNX model"]),
        (without_opsets(), ["opset"]),
        (model([node("GRU", "x x x", "y")], X, opset=6), ["opset 6", "cannot be converted", "GRU"]),
        (relu(999), ["opset 999", "upgrade onnx"]),
        (foreign("com.microsoft"), ["FusedNothing", "com.microsoft", "'f'"]),
        (foreign("com.example"), ["FusedNothing", "com.example", "'f'"]),
        (model([node("Rellu", "x", "y", name="r")], X), ["Rellu", "'r'", "opset 17"]),
        (model([node("Gelu", "x", "y")], X), ["Gelu", "opset 17"]),
        (in_a_branch(), ["Nope"]),
        (model([node("Relu", "a", "y"), node("Relu", "y", "a")], X), ["invalid model"]),
        (model([node("Relu", "nobody", "y")], X), ["invalid model", "nobody"]),
        (model([node("Relu", "x", "y"), node("Relu", "x", "y")], X), ["invalid model"]),
    ],
    ids=range(15),
)
def test_broken_models(broken, words):
    check(broken, words)


def check(thing: object, words: list[str]) -> None:
    with pytest.raises(BrickError) as caught:
        load(thing)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_missing_file_and_folder(tmp_path):
    check(tmp_path / "no.onnx", ["no.onnx", "no such file"])
    check(tmp_path, [str(tmp_path), "folder"])


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="this system has no device without an end")
def test_a_device_without_an_end():
    check("/dev/zero", ["/dev/zero", "device"])
    with pytest.raises(BrickError, match="/dev/zero: is no plan"):
        Runtime(relu(), device="reference", plan="/dev/zero")
    with pytest.raises(BrickError, match="plan is a dict"):
        Runtime(relu(), device="reference", plan={})


def external(folder, location: str = "w.bin", held: int = 6, **told: str) -> object:
    """A model in `folder` whose weights [2, 3] are in the file `location`; `told` is what else is said of them."""
    proto = model([node("MatMul", "x w", "y")], [tensor("x", [1, 2])], w=np.zeros((2, 3), np.float32))
    weights = proto.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "4", "length": "24", **told}.items():
        weights.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    (folder / "w.bin").write_bytes(np.arange(held + 1, dtype=np.float32).tobytes())
    return path


def test_external_data_is_read_at_once(tmp_path):
    """The file may be cut or deleted as soon as the model is loaded."""
    source = load(external(tmp_path))
    os.truncate(tmp_path / "w.bin", 0)
    np.testing.assert_array_equal(source.initializers["w"], np.arange(1, 7, dtype=np.float32).reshape(2, 3))
    assert not source.initializers["w"].flags.writeable


@pytest.mark.parametrize("change", [lambda path: os.truncate(path, 0), os.unlink], ids=["cut", "deleted"])
@pytest.mark.parametrize("when", ["after loading", "between runs"])
def test_runs_need_no_external_data(tmp_path, change, when):
    """Runs of a known and of a new shape compute the same as before the file changed."""
    proto = onnx.load(external(tmp_path), load_external_data=False)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(proto, tmp_path / "model.onnx")
    runtime = Runtime(tmp_path / "model.onnx", device="cpu", threads=1)
    if when == "between runs":
        runtime.execute({"x": np.ones((1, 2), np.float32)})
    change(tmp_path / "w.bin")
    for rows in (1, 3):
        y = runtime.execute({"x": np.ones((rows, 2), np.float32)})["y"]
        np.testing.assert_array_equal(y, np.tile(np.float32([5, 7, 9]), (rows, 1)))


def test_external_data_that_is_cut_while_it_is_read(tmp_path, monkeypatch):
    path = external(tmp_path)
    monkeypatch.setattr(np, "fromfile", lambda *args, offset: np.zeros(5, np.uint8))
    check(path, ["'w'", "w.bin", "too short"])


def test_external_data_written_by_onnx(tmp_path):
    proto = model([node("MatMul", "x w", "y")], [tensor("x", [1, 40])], w=np.ones((40, 40), np.float32))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    np.testing.assert_array_equal(load(tmp_path / "m.onnx").initializers["w"], np.ones((40, 40), np.float32))


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "a/../../w.bin", "C:\\w.bin", ""])
def test_external_data_must_lie_in_the_folder(tmp_path, location):
    check(external(tmp_path, location), ["'w'", "outside the model's folder"])


def test_external_data_must_not_escape_by_a_link(tmp_path):
    (tmp_path / "inside").mkdir()
    path = external(tmp_path / "inside", "link.bin")
    (tmp_path / "secret").write_bytes(b"\0" * 64)
    os.symlink(tmp_path / "secret", tmp_path / "inside" / "link.bin")
    check(path, ["link.bin", "outside the model's folder"])


def test_external_data_that_is_missing_or_short(tmp_path):
    check(external(tmp_path, "other.bin"), ["other.bin", "missing"])
    check(external(tmp_path, held=3), ["w.bin", "too short"])


@pytest.mark.parametrize(
    ("told", "about"),
    [
        ({"length": "28"}, "too short"),
        ({"offset": "1000"}, "too short"),
        ({"length": "20"}, "needs 24 bytes, its data has 20"),
        ({"length": "-1"}, "length '-1'"),
        ({"offset": "first"}, "offset 'first'"),
        ({"offset": "9" * 5000}, "no number of bytes"),
        ({"location": "a" * 300}, "missing"),
    ],
    ids=str,
)
def test_external_data_where_the_file_has_none(tmp_path, told, about):
    check(external(tmp_path, **told), ["'w'", about])


def test_external_data_that_is_a_link_to_itself(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    check(external(tmp_path, "loop"), ["'w'", "missing"])


@pytest.mark.parametrize("kind", ["INT4", "UINT2", "FLOAT6E2M3", "FLOAT8E4M3FN", "BFLOAT16", "BOOL", "COMPLEX64"])
@pytest.mark.parametrize("inner", [False, True], ids=["initializer", "constant"])
def test_external_data_of_small_and_odd_elements(tmp_path, kind, inner):
    """As they are packed in a file, and none at all."""
    number = onnx.TensorProto.DataType.Value(kind)
    for values in ([1, 0, 1, 1, 0], []):
        inside = numpy_helper.to_array(helper.make_tensor("w", number, [len(values)], values))
        weights = numpy_helper.from_array(inside, "w")
        (tmp_path / "w.bin").write_bytes(weights.raw_data)
        weights.ClearField("raw_data")
        weights.data_location = onnx.TensorProto.EXTERNAL
        weights.external_data.add(key="location", value="w.bin")
        proto = model([node("Identity", "w", "y")], opset=26)
        proto.ir_version = onnx.IR_VERSION
        if inner:
            proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=weights))
        else:
            proto.graph.initializer.append(weights)
        (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
        found = load(tmp_path / "model.onnx").initializers["w"]
        assert found.dtype == inside.dtype and found.tolist() == inside.tolist()


def test_external_data_of_functions_and_sparse_constants(tmp_path):
    weights = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[2])
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(np.float32([3, 4]).tobytes())
    places = numpy_helper.from_array(np.array([0, 1]))
    sparse = onnx.SparseTensorProto(values=weights, indices=places, dims=[2])
    body = [helper.make_node("Constant", [], ["c"], value=weights), node("Add", "a c", "b")]
    imports = [helper.make_opsetid("", 17)]
    nodes = [helper.make_node("Constant", [], ["s"], sparse_value=sparse), node("Add", "x s", "t")]
    proto = model([*nodes, helper.make_node("Own", ["t"], ["y"], domain="own")], X)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.functions.append(helper.make_function("own", "Own", ["a"], ["b"], body, imports))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    constants = load(tmp_path / "model.onnx").initializers.values()
    assert [array.tolist() for array in constants] == [[3, 4], [3, 4]]


def empty_sparse(count: int, extents: list[int]) -> onnx.ModelProto:
    """The sum of so many sparse tensors without a value."""
    proto = model([node("Sum", " ".join(f"w{k}" for k in range(count)), "y")])
    for k in range(count):
        values = onnx.TensorProto(name=f"w{k}", data_type=onnx.TensorProto.FLOAT, dims=[0])
        places = onnx.TensorProto(data_type=onnx.TensorProto.INT64, dims=[0])
        proto.graph.sparse_initializer.add(values=values, indices=places, dims=extents)
    return proto


def copies(levels: int) -> onnx.ModelProto:
    """Functions of which each calls the one before 32 times, the first with a constant of 100 kB."""
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(25_000, np.float32)))
    bodies = [[constant, node("ReduceSum", "c", "d", keepdims=0), node("Add", "a d", "b")]]
    names = ["a", *(f"t{k}" for k in range(31)), "b"]
    for level in range(levels):
        calls = [helper.make_node(f"F{level}", [i], [o], domain="own") for i, o in pairwise(names)]
        bodies.append(calls)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    proto = model([helper.make_node(f"F{levels}", ["x"], ["y"], domain="own")], X)
    proto.opset_import.append(imports[1])
    proto.functions.extend(helper.make_function("own", f"F{k}", ["a"], ["b"], b, imports) for k, b in enumerate(bodies))
    return proto


def test_what_small_files_ask_too_much_memory_for():
    check(empty_sparse(1 << 12, [1 << 30]), ["is sparse", "bytes"])
    check(empty_sparse(1, [0, 1 << 62, 1 << 62]), ["'w0'", "more than any memory"])
    check(copies(3), ["functions", "bytes"])
    assert len(load(copies(1)).nodes) == 64


def test_functions_of_one_name():
    proto = copies(0)
    proto.functions.append(proto.functions[0])
    check(proto, ["functions have one name"])


def test_external_data_needs_a_path(tmp_path):
    check(external(tmp_path).read_bytes(), ["'w'", "by its path"])


def test_external_data_of_a_constant_node(tmp_path):
    path = external(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    value = proto.graph.initializer.pop()
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=value))
    path.write_bytes(proto.SerializeToString())
    assert load(path).initializers["w"].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_external_data_with_a_nul_in_its_path(tmp_path):
    check(external(tmp_path, "w\0.bin"), ["'w'", "NUL"])


def test_what_is_no_model_and_no_path(tmp_path):
    check(3, ["not a int"])
    check("a\0b.onnx", ["NUL"])


def test_any_other_error_is_called_a_defect(monkeypatch):
    def fails(*given: object) -> None:
        raise KeyError("inside")

    monkeypatch.setattr("brickrt.graph.onnx_import.source.graph_parts", fails)
    with pytest.raises(Defect, match=r"loading .*KeyError: 'inside'.*report") as caught:
        load(relu())
    assert isinstance(caught.value.__cause__, KeyError)


def test_schemas_registered_later_count():
    """Which opsets there are is looked up once, and again before one is said to be too new."""
    domain = "of.a.test"
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 2)]
    proto = helper.make_model(helper.make_graph([], "empty", [], []), opset_imports=opsets)
    schemas = [defs.OpSchema("One", domain, version) for version in (1, 2)]
    defs.register_schema(schemas[0])
    try:
        with pytest.raises(ModelError, match=r"opset 2 of domain 'of\.a\.test' is newer than the 1"):
            check_header(proto, "model")
        defs.register_schema(schemas[1])
        assert check_header(proto, "model")[domain] == 2
    finally:
        for version in (1, 2):
            with suppress(defs.SchemaError):
                defs.deregister_schema("One", version, domain)
