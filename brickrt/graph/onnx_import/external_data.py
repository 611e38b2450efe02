"""Reads tensors, also those whose data lies in files beside the model."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
import onnx
from onnx import helper, numpy_helper

from brickrt.graph.errors import ModelError


def tensor_array(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray:
    """The values of a tensor; `folder` is where the model lies, None for a model that came without a path.

    Data in files is read at once: a file that is mapped and then cut short would end the process with SIGBUS.
    """
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external_array(tensor, folder)
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError) as e:
        raise ModelError(f"tensor '{tensor.name}' is damaged ({e}): export the model again") from e


def sparse_array(sparse: onnx.SparseTensorProto, folder: Path | None) -> np.ndarray:
    """The dense form of a sparse tensor."""
    values, indices = tensor_array(sparse.values, folder), tensor_array(sparse.indices, folder)
    shape, name = tuple(sparse.dims), sparse.values.name
    _check_indices(name, shape, values, indices)
    dense = np.zeros(shape, values.dtype)
    where = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
    dense.reshape(-1)[where] = values
    return dense


def _check_indices(name: str, shape: tuple[int, ...], values: np.ndarray, indices: np.ndarray) -> None:
    """Raises ModelError unless `indices` are positions in the whole tensor, or rows of one index for each axis."""
    limits = math.prod(shape) if indices.ndim == 1 else np.array(shape)
    wanted = {1: (values.size,), 2: (values.size, len(shape))}.get(indices.ndim)
    inside = bool(shape) and indices.shape == wanted and bool(np.all((indices >= 0) & (indices < limits)))
    if values.ndim != 1 or indices.dtype != np.int64 or not inside:
        raise ModelError(
            f"sparse tensor '{name}' of shape {list(shape)} has values of shape {list(values.shape)} whose indices, "
            f"{indices.dtype.name}{list(indices.shape)}, are not positions in it: export the model again"
        )


def bytes_beside(tensors: Iterable[onnx.TensorProto], folder: Path | None) -> int:
    """Bytes of the files beside the model in which tensors lie, each file counted once; 0 for what is not there."""
    stored = (t.external_data for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL)
    files = {entry.value for entries in stored for entry in entries if entry.key == "location"}
    return 0 if folder is None else sum(_size(folder / file) for file in files if "\0" not in file)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # reading the tensor says what is wrong
        return 0


def embed_external_data(tensors: Iterable[onnx.TensorProto], folder: Path | None) -> None:
    """Copies what of these tensors lies in files into the model."""
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.raw_data = _external_bytes(tensor, folder).tobytes()
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def _external_array(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray:
    data = _external_bytes(tensor, folder)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if _bits(dtype) < 8:
        packed = {"data_type": tensor.data_type, "dims": tensor.dims, "raw_data": data.tobytes()}
        return numpy_helper.to_array(onnx.TensorProto(**packed))
    return data.view(dtype).reshape(tuple(tensor.dims))


def _external_bytes(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray:
    info = {entry.key: entry.value for entry in tensor.external_data}
    path = _inside(info.get("location", ""), tensor.name, folder)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if dtype.kind == "O":
        raise ModelError(f"tensor '{tensor.name}' of strings lies in a file, which ONNX has no form for: embed it")
    nbytes = -(-math.prod(tensor.dims) * _bits(dtype) // 8)
    if not os.path.isfile(path):
        raise ModelError(f"tensor '{tensor.name}': file '{path}' is missing: put it beside the model")
    offset, length = (_number(tensor.name, info, key, unsaid) for key, unsaid in (("offset", 0), ("length", nbytes)))
    if length < nbytes:
        raise ModelError(f"tensor '{tensor.name}' needs {nbytes} bytes, its data has {length}: export the model again")
    if path.stat().st_size < offset + length:
        raise ModelError(f"tensor '{tensor.name}': file '{path}' is too short: copy it again")
    return _read(path, offset, nbytes, tensor.name)


def _read(path: Path, offset: int, nbytes: int, tensor: str) -> np.ndarray:
    """Bytes of a file, which must not be changed."""
    try:
        data = np.fromfile(path, np.uint8, nbytes, offset=offset)
    except OSError as e:
        raise ModelError(f"tensor '{tensor}': file '{path}' cannot be read: {e.strerror or e}") from None
    if data.size < nbytes:  # it was cut since it was measured
        raise ModelError(f"tensor '{tensor}': file '{path}' is too short: copy it again")
    data.flags.writeable = False
    return data


def _number(tensor: str, info: Mapping[str, str], key: str, unsaid: int) -> int:
    """Where external data begins, or how long it is."""
    text = info.get(key, str(unsaid))
    if not re.fullmatch("[0-9]{1,19}", text):  # files have fewer than 2⁶³ bytes
        raise ModelError(
            f"tensor '{tensor}': {key} '{text:.40}' of its data is no number of bytes: export the model again"
        )
    return int(text)


def _bits(dtype: np.dtype) -> int:
    """Bits per element in a file. Elements of less than a byte are packed there; a type's name has its bits."""
    digits = re.search(r"\d+", dtype.name)
    return int(digits[0]) if digits else dtype.itemsize * 8


def _inside(location: str, name: str, folder: Path | None) -> Path:
    """The data file, which must lie in the model's folder."""
    if folder is None:
        raise ModelError(f"tensor '{name}' lies in file '{location}': load the model by its path")
    if "\0" in location:
        raise ModelError(f"tensor '{name}': file {location!r} has a NUL in its name: export the model again")
    absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).is_absolute()
    path, root = folder / location, os.path.realpath(folder)
    inside = Path(os.path.realpath(path)).is_relative_to(root)
    if not location or absolute or ".." in Path(location).parts or not inside:
        raise ModelError(f"tensor '{name}': file '{location}' is outside the model's folder: move it beside the model")
    return path
