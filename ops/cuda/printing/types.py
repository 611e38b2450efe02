"""C++ names of element types."""

from __future__ import annotations

import numpy as np

_NAMES = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float16": "brick::half",
    "bfloat16": "brick::bfloat",
    "float32": "float",
    "float64": "double",
}


def ctype(dtype: np.dtype) -> str:
    """The C++ type that stores an element. LookupError for types that no kernel takes (strings, complex numbers)."""
    name = np.dtype(dtype).name
    if name not in _NAMES:
        raise LookupError(f"no CUDA kernel takes elements of type {name}")
    return _NAMES[name]


def is_half(dtype: np.dtype) -> bool:
    """Whether a type is a half type (float16, bfloat16), on which arithmetic is done in float."""
    return np.dtype(dtype).name in ("float16", "bfloat16")


def compute_ctype(dtype: np.dtype) -> str:
    """The C++ type in which arithmetic on the type is done."""
    return "float" if is_half(dtype) else ctype(dtype)
