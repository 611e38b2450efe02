"""The errors, and what else programs import from this place."""

from __future__ import annotations

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
from brickrt.onnxruntime.options import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions

__all__ = [
    "EPFail",
    "ExecutionMode",
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
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
]
