"""The errors, and what else programs import from this place."""

from __future__ import annotations

from brickrt.onnxruntime.devices import (
    OrtAllocatorType,
    OrtArenaCfg,
    OrtDevice,
    OrtDeviceMemoryType,
    OrtMemoryInfo,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    create_and_register_allocator,
)
from brickrt.onnxruntime.environment import get_all_providers, get_available_providers, get_build_info, get_device
from brickrt.onnxruntime.errors import (
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoModel,
    NoSuchFile,
    NotImplemented,
    RuntimeException,
)
from brickrt.onnxruntime.model_info import ModelMetadata, NodeArg
from brickrt.onnxruntime.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, SessionOptions
from brickrt.onnxruntime.ort_value import OrtValue, copy_tensors
from brickrt.onnxruntime.run_options import RunOptions

__all__ = [
    "EPFail",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelMetadata",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotImplemented",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "copy_tensors",
    "create_and_register_allocator",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
]
