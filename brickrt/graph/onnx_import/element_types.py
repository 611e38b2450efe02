"""Element types of tensors before a model runs, as far as the operators' schemas tell them. ONNX's own inference, which
tells a little more, is native code that broken models bring down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, defs, helper

from brickrt.graph.builder import OnnxNode

NAMING = ("to", "dtype", "output_dtype", "output_datatype")
"""Attributes that say an output's element type."""

_WRITTEN = {f"tensor({TensorProto.DataType.Name(n).lower()})": n for n in helper.get_all_tensor_dtypes()}


def element_types(nodes: Iterable[OnnxNode], given: Mapping[str, np.dtype]) -> dict[str, np.dtype]:
    """The types by tensor name, those of inputs and constants among them; `nodes` are in topological order."""
    known = dict(given)
    for node in nodes:
        if not defs.has(node.op_type, node.version, node.domain):
            continue  # a contributed operator
        schema: Any = defs.get_schema(node.op_type, node.version, node.domain)
        letters = {p.type_str: known[n] for n, p in _pairs(node.inputs, schema.inputs) if n in known}
        only = {
            c.type_param_str: c.allowed_type_strs[0] for c in schema.type_constraints if len(c.allowed_type_strs) == 1
        }
        for name, parameter in _pairs(node.outputs, schema.outputs):
            letter = parameter.type_str
            dtype = letters[letter] if letter in letters else _named(node, only.get(letter, letter))
            if dtype is not None:
                known[name] = dtype
    return known


def _pairs(names: tuple[str, ...], parameters: Any) -> list[tuple[str, Any]]:
    """Tensors and the parameters of a schema that they stand for; the last may stand for many, of one type or none."""
    pairs = [(name, parameters[min(k, len(parameters) - 1)]) for k, name in enumerate(names) if parameters]
    return [(name, parameter) for name, parameter in pairs if name and parameter.is_homogeneous]


def _named(node: OnnxNode, written: str) -> np.dtype | None:
    """The type that the schema writes out, or that an attribute names; None where neither does."""
    if node.op_type == "ConstantOfShape":
        value = node.attrs.get("value")
        return np.dtype(np.float32) if value is None else value.dtype
    number = _WRITTEN.get(written) or next((node.attrs[name] for name in NAMING if node.attrs.get(name)), 0)
    return helper.tensor_dtype_to_np_dtype(number) if number in _WRITTEN.values() else None


def _single(constraints: Any) -> list[Any]:
    """Those that allow one type only."""
    return [c for c in constraints if len(c.allowed_type_strs) == 1]


def element_type(value: Any) -> int | str:
    """The ONNX element type of an array, or what else the value is."""
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    return TensorProto.STRING if value.dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(value.dtype)
