"""The model as a file, for programs that ask a session for the optimized one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError

from brickrt.graph.errors import BrickError
from brickrt.onnxruntime.errors import Fail
from brickrt.runtime.compiled.compiled_source import CompiledSource


def write_model(target: str, model: Any, source: Any, given: Mapping[str, np.ndarray]) -> None:
    """Writes the model, a path, bytes or a message, to `target`, with the initializers that were `given` in place of
    its own. It is the model as it was read: what brickrt makes of it are no operators of ONNX, and a warning says so.
    Raises BrickError where there is no ONNX model, or the file cannot be written."""
    if isinstance(source, CompiledSource):
        raise Fail(f"optimized_model_filepath {target}: the model is compiled, and no ONNX model: leave it out")
    proto = _message(model)
    for tensor in proto.graph.initializer:
        if tensor.name in given:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(given[tensor.name], order="C"), tensor.name))
    try:
        _save(proto, Path(target))
    except OSError as e:
        raise Fail(f"optimized_model_filepath {target}: cannot be written ({e.strerror}): give another path") from e
    warnings.warn(
        f"optimized_model_filepath {target}: holds the model as it was read; it is optimized again when it is loaded",
        stacklevel=4,
    )


def _message(model: Any) -> onnx.ModelProto:
    """The model with all its weights."""
    if isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy
    if isinstance(model, str | os.PathLike):
        return onnx.load(os.fspath(model))
    return onnx.ModelProto.FromString(bytes(model))


def _save(proto: onnx.ModelProto, path: Path) -> None:
    """Writes one file, or, of more than protobuf's 2 GiB, a file of weights beside it."""
    try:
        data = proto.SerializeToString()
    except (ValueError, EncodeError):
        onnx.save(proto, str(path), save_as_external_data=True, location=f"{path.name}.data")
        return
    path.write_bytes(data)


def check_apart(target: str, model: Any) -> None:
    """Raises BrickError where the model would be written over the file it is read from."""
    if isinstance(model, str | os.PathLike) and os.path.realpath(target) == os.path.realpath(model):
        raise BrickError(f"optimized_model_filepath {target}: is the model itself: give another path")
