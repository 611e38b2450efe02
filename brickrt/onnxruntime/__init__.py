"""The Python API of ONNX Runtime on brickrt: programs written for it run with `import brickrt.onnxruntime as ort`.

What is here behaves as the names say there; what has no meaning here is accepted and has no effect. Errors are
BrickError, in one line. `__version__` is that of the API that is followed.
"""

from __future__ import annotations

from brickrt.onnxruntime.capi import onnxruntime_pybind11_state as _state  # noqa: F401  (`capi` is there with it)
from brickrt.onnxruntime.environment import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    preload_dlls,
    print_debug_info,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from brickrt.onnxruntime.inference_session import InferenceSession
from brickrt.onnxruntime.io_binding import IOBinding
from brickrt.onnxruntime.model_info import ModelMetadata, NodeArg
from brickrt.onnxruntime.options import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions
from brickrt.onnxruntime.ort_value import OrtValue

__version__ = get_version_string()

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]
