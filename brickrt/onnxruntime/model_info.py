"""What a session tells of its model: inputs, outputs, and who made it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.onnx_import.tensor_info import TensorInfo

_NAMES = {"float32": "float", "float64": "double", "object": "string"}


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model. `shape` has a number, the name of a free dimension, or None for each axis; `type`
    is as in 'tensor(float)'."""

    name: str
    shape: list[int | str | None]
    type: str


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says about itself; texts are empty where it says nothing."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def node_args(
    infos: Mapping[str, TensorInfo], declared: Iterable[onnx.ValueInfoProto], free: Mapping[str, int]
) -> list[NodeArg]:
    """Inputs or outputs as programs see them. `declared` are the model's own messages on them, `free` the sizes that
    were given to free dimensions."""
    types = {value.name: value.type for value in declared}
    found = []
    for name, info in infos.items():
        shape = [free.get(dim, dim) if isinstance(dim, str) else dim for dim in info.shape or ()]
        kind = tensor_type(info.dtype) if info.dtype is not None else _type_text(types.get(name, onnx.TypeProto()))
        found.append(NodeArg(name, shape, kind))
    return found


def metadata(source: SourceGraph) -> ModelMetadata:
    """What a model says about itself."""
    proto = source.light
    return ModelMetadata(
        proto.producer_name,
        proto.graph.name,
        proto.domain,
        proto.doc_string,
        proto.graph.doc_string,
        proto.model_version,
        {entry.key: entry.value for entry in proto.metadata_props},
    )


def tensor_type(dtype: np.dtype) -> str:
    """A tensor's type by its elements: 'tensor(float)', 'tensor(int64)'."""
    return f"tensor({_NAMES.get(dtype.name, dtype.name)})"


def _type_text(kind: onnx.TypeProto) -> str:
    """The type of what is no dense tensor: 'seq(tensor(float))'."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        inner = getattr(kind, which).elem_type
        text = tensor_type(onnx.helper.tensor_dtype_to_np_dtype(inner)) if inner else "tensor(undefined)"
        return text if which == "tensor_type" else f"sparse_{text}"
    if which == "sequence_type":
        return f"seq({_type_text(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({_type_text(kind.optional_type.elem_type)})"
    return "undefined"
