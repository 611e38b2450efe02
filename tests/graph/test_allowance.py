"""What a model may take by itself follows from its bytes and its inputs', whatever the machine has."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from brickrt.graph import allowance
from brickrt.graph.allowance import GIB, Allowance, allowing, held_inside, hold
from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.source import load
from brickrt.graph.room import require_bytes
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import graph, model, node, tensor

MIB = 1 << 20


def wide(extent: int):
    """x [N] → Expand to [extent, N] → y."""
    return model([node("Expand", "x s", "y")], [tensor("x", ["N"])], s=np.array([extent, 1]))


def test_each_byte_given_allows_more_and_a_little_is_always_allowed(monkeypatch):
    assert Allowance(0).bytes == GIB // 2 and Allowance(MIB).bytes == GIB // 2 + 256 * MIB
    assert Allowance(0).seconds == 5 and Allowance(MIB).seconds == 13
    monkeypatch.setenv(allowance.MEMORY, "2")
    monkeypatch.setenv(allowance.SECONDS, "0")
    assert Allowance(0).bytes == 2 * GIB and Allowance(0).seconds == float("inf")
    for text in ("-1", "much", "nan"):
        monkeypatch.setenv(allowance.MEMORY, text)
        with pytest.raises(BrickError, match=r"BRICKRT_MEMORY_GIB is .*: give it a number"):
            Allowance(0)


def test_what_is_held_counts_until_it_is_given_up():
    with allowing(0):
        with held_inside():
            hold(400 * MIB)
            with allowing(GIB), pytest.raises(BrickError, match=r"it takes 209715200 bytes .* beside 0.4 GiB"):
                require_bytes(200 * MIB, "it")
        require_bytes(200 * MIB, "it")
    hold(GIB)  # outside there is nobody who counts


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_large_outputs_need_large_inputs_or_leave(monkeypatch, device):
    x = np.ones(1024, np.float32)
    monkeypatch.setenv(allowance.MEMORY, "0.0625")
    assert Runtime(wide(1 << 12), device=device).execute({"x": x})["y"].shape == (1 << 12, 1024)
    with pytest.raises(BrickError, match=r"Expand_0.* takes 268435456 bytes .*may take 0.1 GiB.*BRICKRT_MEMORY_GIB"):
        Runtime(wide(1 << 15), device=device).execute({"x": x})
    many = np.ones(1 << 19, np.float32)
    assert Runtime(wide(64), device=device).execute({"x": many})["y"].nbytes == 128 * MIB


def test_work_that_no_input_stands_for():
    steps = [node("MatMul", f"b{k} b{k}", f"b{k + 1}", name=f"m{k}") for k in range(40)]
    nodes = [node("Expand", "x s", "b0"), *steps, node("ReduceMax", "b40", "y")]
    proto = model(nodes, [tensor("x", [1])], s=np.array([4000, 4000]))
    with pytest.raises(BrickError, match=r"computing '.*' .* takes about .*BRICKRT_RUN_SECONDS"):
        Runtime(proto, device="cpu").execute({"x": np.ones(1, np.float32)})


def test_a_pooling_window_as_large_as_an_image():
    pool = node("MaxPool", "e", "y", kernel_shape=[99, 99], name="p")
    proto = model([node("Expand", "x s", "e"), pool], [tensor("x", [1])], s=np.array([1, 1, 1500, 1500]))
    with pytest.raises(BrickError, match=r"computing 'p' .* takes about .*BRICKRT_RUN_SECONDS"):
        Runtime(proto, device="cpu").execute({"x": np.ones(1, np.float32)})


def test_weights_that_kernels_read_in_a_larger_layout():
    """One output channel takes all lanes of a vector."""
    nodes = [node("ConstantOfShape", "s", "w"), node("Conv", "e w", "y", name="c")]
    proto = model([node("Expand", "x s", "e"), *nodes], [tensor("x", [1])], s=np.array([1, 1, 2900, 2900]))
    with pytest.raises(BrickError, match=r"the layout of its kernel takes .* may take 0.5 GiB: .*BRICKRT_MEMORY_GIB"):
        Runtime(proto, device="cpu").execute({"x": np.ones(1, np.float32)})


def test_a_loop_ends_when_its_time_is_over(monkeypatch):
    ends = [tensor("i", [], np.int64), tensor("going", [], bool), tensor("s", [2])]
    body = graph([], ends, "going s")  # nothing in it asks whether the run goes on: the loop does
    proto = model([node("Loop", "n _ x", "y", body=body, name="l")], [tensor("x", [2])], n=np.int64(1 << 40))
    monkeypatch.setenv(allowance.SECONDS, "0.05")
    with pytest.raises(BrickError, match=r"^Loop node 'l' is not done after 0 s"):
        Runtime(proto, device="reference").execute({"x": np.ones(2, np.float32)})


def test_files_beside_the_model_are_given_too(tmp_path):
    proto = model([node("Add", "x w", "y")], [tensor("x", [1])], w=np.ones(MIB, np.float32))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    beside = (tmp_path / "w.bin").stat().st_size + (tmp_path / "m.onnx").stat().st_size
    assert beside - 64 < load(tmp_path / "m.onnx").stored_bytes <= beside
    message = wide(2)  # whose weights and nodes are counted
    parts = sum(len(one.raw_data) for one in message.graph.initializer) + message.graph.node[0].ByteSize()
    assert load(message).stored_bytes == parts > 16
