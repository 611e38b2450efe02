"""Devices and places in memory, beside ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import brickrt.onnxruntime as ort
from brickrt.graph.errors import BrickError
from tests.support.graphs.onnx_models import model, node, tensor

ENUMS = ("OrtAllocatorType", "OrtMemType", "OrtDeviceMemoryType", "OrtMemoryInfoDeviceType", "ExecutionOrder")


@pytest.mark.parametrize("name", ENUMS)
def test_numbers_are_those_of_onnxruntime(name):
    mine, other = getattr(ort, name), getattr(onnxruntime, name)
    assert {n: int(v) for n, v in mine.__members__.items()} == {n: int(v) for n, v in other.__members__.items()}


@pytest.mark.parametrize("name", ["cpu", "gpu", "cuda", "dml", "npu", "cann", "webgpu"])
def test_devices_are_those_of_onnxruntime(name):
    mine, other = (there.OrtDevice.make(name, 1) for there in (ort, onnxruntime))
    for asked in ("device_id", "device_type", "device_vendor_id", "device_mem_type"):
        assert getattr(mine, asked)() == getattr(other, asked)(), asked
    assert ort.OrtDevice.make("gpu", 0, ort.OrtDeviceVendorId.AMD).device_vendor_id() == 0x1002
    with pytest.raises(BrickError, match="device 'abacus' is unknown: there are cpu"):
        ort.OrtDevice.make("abacus", 0)


@pytest.mark.parametrize("there", [ort, onnxruntime])
def test_places_in_memory(there):
    info = there.OrtMemoryInfo("Cpu", there.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, there.OrtMemType.DEFAULT)
    assert (info.name, info.device_id, info.device_vendor_id) == ("Cpu", 0, 0)
    assert info.allocator_type == there.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    assert info.mem_type == there.OrtMemType.DEFAULT
    made = model([node("Relu", "x", "y")], [tensor("x", (2,))], [tensor("y", (2,))])
    session = there.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for [found] in (session.get_input_memory_infos(), session.get_output_memory_infos()):
        assert (found.name, found.allocator_type) == ("Cpu", there.OrtAllocatorType.ORT_ARENA_ALLOCATOR)


def test_values_take_devices_and_places():
    device = ort.OrtDevice.make("cpu", 0)
    made = model([node("Relu", "x", "y")], [tensor("x", (2,))], [tensor("y", (2,))])
    session = ort.InferenceSession(made.SerializeToString())
    info = session.get_input_memory_infos()[0]
    x = ort.OrtValue.ortvalue_from_shape_and_type([2], np.float32, memory_info=info)
    y = ort.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32), device)
    x.update_inplace(ort.OrtValue.ortvalue_from_numpy(np.array([-1, 2], np.float32)))
    binding = session.io_binding()
    binding.bind_input("x", device, 0, np.float32, x.shape(), x.data_ptr())
    binding.bind_output("y", device, 0, np.float32, y.shape(), y.data_ptr())
    session.run_with_iobinding(binding)
    assert y.numpy().tolist() == [0, 2] and binding.get_outputs_as_ortvaluevector()[0].data_ptr() == y.data_ptr()
    ort.copy_tensors([y], [x])
    assert x.numpy().tolist() == [0, 2]
    with pytest.raises(BrickError, match="values on 'cuda'"):
        ort.OrtValue.ortvalue_from_numpy(x.numpy(), ort.OrtDevice.make("cuda", 0))
    with pytest.raises(BrickError, match="1 values are to be copied into 0"):
        ort.copy_tensors([y], [])
