"""Values that programs hold by themselves: NumPy arrays under the name that ONNX Runtime has for them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.shared_arrays import shared_array
from brickrt.onnxruntime.devices import OrtDevice, OrtMemoryInfo, check_host
from brickrt.onnxruntime.model_info import tensor_type

Place = str | OrtDevice | OrtMemoryInfo


class OrtValue:
    """An array in the host's memory, or another value of a model."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray, device_type: Place = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """The array itself, without a copy. Raises BrickError for a device other than the CPU."""
        check_host(device_type)
        return cls(numpy_obj)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The bits of the array, without a copy, as elements of ONNX's type of this number, such as 16 for bfloat16.
        Raises BrickError where these have another size."""
        kind = numpy_type(onnx_element_type)
        if data.dtype.itemsize != kind.itemsize:
            raise BrickError(f"elements of {data.dtype} do not hold {kind}: give an array of as many bytes each")
        return cls(data.view(kind))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: Place = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """Room for a tensor, not initialised; `element_type` is NumPy's type or ONNX's number for it. Raises BrickError
        for a place that is not in the host's memory."""
        check_host(device_type if memory_info is None else memory_info)
        return cls(np.empty(tuple(shape), numpy_type(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """An array of another library, on the same memory. Raises BrickError where it is not in the host's."""
        array = shared_array(data)
        if array is None:
            raise BrickError(f"a {type(data).__name__} is no array in the host's memory: give a NumPy array")
        return cls(array.view(np.bool_) if is_bool_tensor else array)

    def numpy(self) -> Any:
        """The array; no copy."""
        return self._value

    def update_inplace(self, data: Any) -> None:
        """Writes other values of the same shape, an array's or another value's. Raises BrickError for another shape."""
        array = np.asarray(data)
        if array.shape != self._value.shape:
            raise BrickError(f"an array of shape {array.shape} does not fit one of {self._value.shape}")
        self._value[...] = array

    def shape(self) -> list[int]:
        """Extents of the axes."""
        return list(self._value.shape)

    def data_type(self) -> str:
        """The type as text: 'tensor(float)'."""
        return tensor_type(self._value.dtype) if self.is_tensor() else "undefined"

    def element_type(self) -> int:
        """ONNX's number for the type of the elements."""
        return helper.np_dtype_to_tensor_dtype(self._value.dtype)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._value.ctypes.data

    def tensor_size_in_bytes(self) -> int:
        """Bytes of all elements."""
        return self._value.nbytes

    def device_name(self) -> str:
        """Where the value is."""
        return "cpu"

    def has_value(self) -> bool:
        """Whether an optional has something in it."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is an array."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a list."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """False: sparse tensors are made dense."""
        return False

    def to_dlpack(self) -> Any:
        """A capsule for other libraries, on the same memory."""
        return self.__dlpack__()

    @property
    def _ortvalue(self) -> OrtValue:
        """What programs for torch ask for its capsule."""
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._value, dtype=dtype, copy=copy)

    def __dlpack__(self, **how: Any) -> Any:
        return self._value.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self._value.__dlpack_device__()


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Writes the values of some into others of the same shapes. Raises BrickError where these differ."""
    if len(src) != len(dst):
        raise BrickError(f"{len(src)} values are to be copied into {len(dst)}: give as many")
    for one, other in zip(src, dst, strict=True):
        other.update_inplace(one)


def numpy_type(element_type: Any) -> np.dtype[Any]:
    """NumPy's type for its own name of it, or for ONNX's number. Raises BrickError where there is none."""
    try:
        known = helper.tensor_dtype_to_np_dtype(element_type) if isinstance(element_type, int) else element_type
        return np.dtype(known)
    except (KeyError, TypeError):
        raise BrickError(f"element type {element_type!r} is unknown: give NumPy's, as numpy.float32") from None


def array_at(address: int, element_type: Any, shape: Sequence[int]) -> np.ndarray:
    """The memory of somebody else's, which must stay, as an array."""
    kind = numpy_type(element_type)
    count = int(np.prod(shape, dtype=np.int64))
    memory: Any = (ctypes.c_ubyte * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(memory, np.uint8).view(kind).reshape(tuple(shape))
