"""Changes of element type."""

from __future__ import annotations

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert
from brickrt.graph.errors import Unsupported

# Codes of onnx.TensorProto.DataType.
_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
}  # fmt: skip


def element_type(code: int) -> np.dtype:
    """The NumPy type of an ONNX type code. Raises Unsupported for strings and types NumPy does not have."""
    if code not in _TYPES:
        raise Unsupported(f"elements of ONNX type {code}")
    return np.dtype(_TYPES[code])


@builds("Cast")
def cast_to(b: Builder, node: OnnxNode) -> str:
    """A change of element type."""
    return convert(b, node.inputs[0], element_type(node.attrs["to"]))


@builds("CastLike")
def cast_like(b: Builder, node: OnnxNode) -> str:
    """A change to the second input's element type."""
    return convert(b, node.inputs[0], b.type(node.inputs[1]).dtype)
