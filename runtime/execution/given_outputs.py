"""Arrays of the caller's that a call writes its outputs into."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from brickrt.graph.errors import InputError
from brickrt.graph.onnx_import.shared_arrays import shared_array
from brickrt.ops.types import TensorType


def given_outputs(
    outputs: Mapping[str, Any] | None, names: Collection[str], inputs: Iterable[Any]
) -> dict[str, np.ndarray]:
    """The caller's arrays by name, as NumPy's on the same memory. `names` are the model's outputs, `inputs` what the
    call reads. Raises InputError where an array cannot be written, or is written while another is used."""
    if outputs is None:
        return {}
    if not isinstance(outputs, Mapping):
        raise InputError(
            f"outputs are a {type(outputs).__name__}: give them by name, as {{'{next(iter(names))}': array}}"
        )
    found = {name: _writable(name, value, names) for name, value in outputs.items()}
    used = [value for value in inputs if isinstance(value, np.ndarray)]
    for name, array in found.items():
        if any(np.may_share_memory(array, other) for other in used):
            raise InputError(f"output '{name}' shares memory with an input or another output: give it its own")
        used.append(array)
    return found


def check_given(name: str, array: np.ndarray, kind: TensorType) -> np.ndarray:
    """The caller's array for an output of this type. Raises InputError where it is of another type or shape."""
    if array.dtype != kind.dtype or array.shape != tuple(kind.shape):
        shape = ",".join(map(str, array.shape))
        raise InputError(f"output '{name}' is {array.dtype}[{shape}], the model gives {kind}: give an array of that")
    return array


def fill_given(given: Mapping[str, np.ndarray], values: dict[str, Any]) -> None:
    """Brings outputs that were computed elsewhere into the caller's arrays; `values` then has these."""
    for name, array in given.items():
        value = values[name]
        if value is array:
            continue
        if not isinstance(value, np.ndarray):
            raise InputError(f"output '{name}' is a {type(value).__name__}: no array can be given for it")
        check_given(name, array, TensorType(value.shape, value.dtype))[...] = value
        values[name] = array


def _writable(name: str, value: Any, names: Collection[str]) -> np.ndarray:
    if name not in names:
        raise InputError(f"output '{name}' is not one of the model's: it gives {', '.join(map(repr, names))}")
    array = shared_array(value)
    if array is None:
        raise InputError(f"output '{name}' is a {type(value).__name__}: give an array in the host's memory")
    if not array.flags.c_contiguous or not array.flags.writeable or not array.flags.aligned:
        raise InputError(f"output '{name}' is read-only or not in row-major order: give an array as np.empty makes it")
    return array
