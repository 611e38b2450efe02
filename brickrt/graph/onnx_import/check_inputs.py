"""Checks that arrays fit a model's inputs. Nothing is converted silently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np

from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.shared_arrays import NOT_SHARED, shared_array
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.ops.types import TensorType

Bound = dict[str, tuple[int, str]]
"""The extent of each symbolic dimension, and the input that fixed it."""


class DeclaredInputs(Protocol):
    """What says which inputs there are: a model, or a file that was compiled of one."""

    @property
    def inputs(self) -> Mapping[str, TensorInfo]:
        """The inputs that a call needs."""
        ...

    @property
    def optional(self) -> Mapping[str, TensorInfo]:
        """The inputs that it may leave out."""
        ...


def check_inputs(source: DeclaredInputs, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arrays in the model's order, in row-major memory; those on a GPU as they are.

    Raises InputError for inputs that are missing, unknown, or of another type, rank or extent than the model says.
    """
    expected = {**source.inputs, **source.optional}
    for name in arrays:
        if name not in expected:
            raise InputError(f"input '{name}' is not one of the model's{_suggestion(name, expected)}")
    missing = [name for name in source.inputs if name not in arrays]
    if missing:
        wanted = ", ".join(f"'{name}' {describe(source.inputs[name])}" for name in missing)
        raise InputError(f"input {wanted} is missing: give an array for it")
    bound: Bound = {}
    return {name: _checked(name, info, arrays[name], bound) for name, info in expected.items() if name in arrays}


def check_input_types(source: DeclaredInputs, types: Mapping[str, TensorType]) -> None:
    """As `check_inputs`, of arrays of which types alone are known; optional inputs are not given."""
    for name in types:
        if name not in source.inputs:
            raise InputError(f"input '{name}' is not one of the model's{_suggestion(name, source.inputs)}")
    bound: Bound = {}
    for name, info in source.inputs.items():
        if name not in types:
            raise InputError(f"input '{name}' {describe(info)} is missing: give a file for it")
        if info.shape is not None:
            shape = types[name].shape
            _check_shape(name, info, np.broadcast_to(np.zeros((), types[name].dtype), shape), bound)


def check_named(arrays: object, expected: Iterable[str]) -> None:
    """Raises InputError where arrays are not given by name."""
    if not isinstance(arrays, Mapping):
        given = next(iter(expected), "x")
        raise InputError(f"inputs are a {type(arrays).__name__}: give them by name, as {{'{given}': array}}")


def describe(info: TensorInfo) -> str:
    """A tensor of the model as `float32[N,3,224,224]`."""
    kind = _type_name(info.dtype) if info.dtype is not None else "value"
    if info.shape is None:
        return kind
    return f"{kind}[{','.join('?' if d is None else str(d) for d in info.shape)}]"


def _checked(name: str, info: TensorInfo, value: Any, bound: Bound) -> Any:
    if info.dtype is None:
        return value
    if value is None or isinstance(value, (dict, str, bytes)):
        raise InputError(f"input '{name}' is a {type(value).__name__}: give an array {describe(info)}")
    on_gpu = hasattr(value, "__cuda_array_interface__")
    array = value if on_gpu else _as_array(name, info, value)
    _check_type(name, info, info.dtype, array)
    if info.shape is not None:
        _check_shape(name, info, array, bound)
    return array if on_gpu else np.require(array, requirements="C")


def _as_array(name: str, info: TensorInfo, value: Any) -> np.ndarray:
    shared = shared_array(value)
    try:
        return np.asarray(value) if shared is None else shared
    except NOT_SHARED as e:
        told = " ".join(str(e).split())
        raise InputError(f"input '{name}' is no array ({told}): give one {describe(info)}") from e


def _check_type(name: str, info: TensorInfo, dtype: np.dtype, array: np.ndarray) -> None:
    text = dtype == np.dtype(object) and array.dtype.kind in "OUS"
    if array.dtype != dtype and not text:
        order = "" if array.dtype.isnative else " in another byte order"
        raise InputError(
            f"input '{name}' is {_type_name(array.dtype)}{order}, the model takes {describe(info)}: "
            f"convert it with {name if name.isidentifier() else 'x'}.astype('{_type_name(dtype)}')"
        )


def _check_shape(name: str, info: TensorInfo, array: np.ndarray, bound: Bound) -> None:
    wanted, got = describe(info), f"[{','.join(map(str, array.shape))}]"
    shape = info.shape or ()
    if array.ndim != len(shape):
        hint = ": add a batch dimension with x[None]" if array.ndim == len(shape) - 1 else ": reshape it"
        raise InputError(f"input '{name}' has {array.ndim} dimensions {got}, the model takes {wanted}{hint}")
    for axis, (dim, extent) in enumerate(zip(shape, array.shape, strict=True)):
        if isinstance(dim, int) and dim != extent:
            raise InputError(
                f"input '{name}' has shape {got}, the model takes {wanted}: dimension {axis} must be {dim}"
            )
        if isinstance(dim, str):
            first, owner = bound.setdefault(dim, (extent, name))
            if first != extent:
                raise InputError(
                    f"input '{name}' has shape {got}, the model takes {wanted}: "
                    f"'{dim}' is {extent} here and {first} in '{owner}', give both the same"
                )


def _suggestion(name: str, expected: Iterable[str]) -> str:
    close = get_close_matches(str(name), expected, 1)
    if close:
        return f": did you mean '{close[0]}'?"
    return f": it takes {', '.join(repr(e) for e in list(expected)[:8])}" if expected else ": it takes no inputs"


def _type_name(dtype: np.dtype) -> str:
    return "string" if dtype.kind in "OUS" else dtype.name
