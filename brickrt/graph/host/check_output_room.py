"""Refuses a host node whose outputs memory has no room for, before NumPy is asked for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, shape_inference

from brickrt.graph.builder import OnnxNode
from brickrt.graph.errors import BrickError
from brickrt.graph.room import require_room_together
from brickrt.ops.types import TensorType

SIZED = frozenset(
    (
        *("ConstantOfShape", "Expand", "Tile", "Range", "OneHot", "Pad", "CenterCropPad", "Resize", "Upsample"),
        *("RandomNormal", "RandomUniform", "Multinomial", "BlackmanWindow", "HannWindow", "HammingWindow"),
        *("DFT", "STFT", "ConvTranspose", "MaxUnpool", "Col2Im"),
    )
)
"""Standard operators whose attributes or input values can ask for an output far larger than the inputs are."""

MOST_VALUES = 64
"""Inputs of no more elements may be shapes: these are shown to ONNX's shape inference."""


def check_output_room(node: OnnxNode, feeds: Mapping[str, Any]) -> None:
    """Raises BrickError, naming the node and its outputs, where these need more memory than is available, and for a
    TopK of more elements than there are: the evaluator counts them all first."""
    if node.op_type == "TopK" and len(node.inputs) > 1 and not node.domain:
        size, most = np.size(feeds[node.inputs[0]]), np.max(feeds[node.inputs[1]], initial=0)
        if most > size:
            raise BrickError(f"TopK node '{node.name}' is asked for {most} of {size} elements: give a smaller k")
    if node.domain or node.op_type not in SIZED:
        return
    require_room_together(_outputs(node, feeds), f"{node.op_type} node '{node.name}' gives what")


def _outputs(node: OnnxNode, feeds: Mapping[str, Any]) -> list[TensorType]:
    """The types of the outputs, as far as ONNX can tell."""
    arrays = {name: a for name, a in feeds.items() if isinstance(a, np.ndarray) and a.dtype.kind not in "OUS"}
    numbers = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in arrays.items()}
    types = {name: helper.make_tensor_type_proto(numbers[name], a.shape) for name, a in arrays.items()}
    data = {name: numpy_helper.from_array(a) for name, a in arrays.items() if a.size <= MOST_VALUES}
    schema = defs.get_schema(node.op_type, node.version)
    imports = [helper.make_opsetid("", node.version)]
    try:
        found = shape_inference.infer_node_outputs(schema, node.proto, types, data, opset_imports=imports)
    except Exception:  # whatever is wrong with the node, running it says so in better words
        return []
    return [known for kind in found.values() if (known := _known(kind)) is not None]


def _known(kind: onnx.TypeProto) -> TensorType | None:
    tensor = kind.tensor_type
    dims = tensor.shape.dim
    if not (tensor.elem_type and tensor.HasField("shape") and all(d.HasField("dim_value") for d in dims)):
        return None
    return TensorType(tuple(d.dim_value for d in dims), helper.tensor_dtype_to_np_dtype(tensor.elem_type))
