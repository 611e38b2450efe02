"""The Python API of ONNX Runtime on brickrt: programs written for it run with `import brickrt.onnxruntime as ort`.

What is here behaves as the names say there; what has no meaning here is accepted and has no effect. Errors are
BrickError, in one line. `__version__` is that of the API that is followed.
"""

from __future__ import annotations

from brickrt.onnxruntime.capi import onnxruntime_pybind11_state as _state  # noqa: F401  (`capi` is there with it)
from brickrt.onnxruntime.devices import (
    OrtAllocatorType,
    OrtArenaCfg,
    OrtDevice,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtMemoryInfo,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    create_and_register_allocator,
    create_and_register_allocator_v2,
)
from brickrt.onnxruntime.environment import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    set_default_logger_callback,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_global_thread_pool_sizes,
    set_seed,
)
from brickrt.onnxruntime.inference_session import InferenceSession
from brickrt.onnxruntime.io_binding import IOBinding
from brickrt.onnxruntime.model_info import ModelMetadata, NodeArg
from brickrt.onnxruntime.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, SessionOptions
from brickrt.onnxruntime.ort_value import OrtValue, copy_tensors
from brickrt.onnxruntime.run_options import RunOptions

__version__ = version = get_version_string()

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "version",
]
