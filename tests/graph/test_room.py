"""Tensors that memory has no room for are refused, those that it has room for are not."""

from __future__ import annotations

import numpy as np
import pytest

from brickrt.graph import room
from brickrt.graph.errors import BrickError
from brickrt.runtime.session.runtime import Runtime
from tests.support.graphs.onnx_models import model, node, tensor

F32 = np.dtype(np.float32)
MIB = 1 << 20


def test_this_machine_has_some_memory():
    assert 64 * MIB < room.available_bytes() < 1 << 50


@pytest.mark.parametrize(("limit", "left"), [(str(64 * MIB), 64 - 40 + 5), (str(8 * MIB), 0), ("max", None)])
def test_a_container_has_what_its_limit_leaves(monkeypatch, tmp_path, limit, left):
    free = room.available_bytes()
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{40 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon {30 * MIB}\nactive_file {2 * MIB}\ninactive_file {3 * MIB}\n")
    monkeypatch.setattr(room, "CGROUP", tmp_path)
    if left is None:
        assert room.available_bytes() > free // 4
    else:
        assert room.available_bytes() == left * MIB


def test_one_tensor_and_several(monkeypatch):
    monkeypatch.setattr(room, "available_bytes", lambda: 32 * MIB)
    room.require_room([8, MIB], F32, "a tensor")
    with pytest.raises(BrickError, match=r"a tensor float32\[9,1048576\] takes 37748736 bytes"):
        room.require_room([9, MIB], F32, "a tensor")
    room.require_bytes(32 * MIB, "a node's outputs")
    with pytest.raises(BrickError, match="a node's outputs takes 33554433 bytes"):
        room.require_bytes(32 * MIB + 1, "a node's outputs")
    room.require_table_room(MIB // 2, "a node")
    with pytest.raises(BrickError, match="1048576 positions"):
        room.require_table_room(MIB, "a node")


def test_a_run_that_this_moment_has_no_room_for(monkeypatch):
    proto = model([node("Expand", "x s", "y")], [tensor("x", [1, 1024])], s=np.array([4096, 1024]))
    inputs = {"x": np.ones((1, 1024), np.float32)}
    monkeypatch.setattr("brickrt.runtime.analysis.memory_projection.available_bytes", lambda: 8 * MIB)
    with pytest.raises(BrickError, match=r"the run would take .*now this machine has"):
        Runtime(proto, device="cpu").execute(inputs)
