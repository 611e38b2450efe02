"""Checks the element types of a node's inputs against the operator's schema: builders and kernels rely on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, defs, helper

from brickrt.graph.builder import OnnxNode
from brickrt.ops.types import MOST_DIMENSIONS, TensorType

OPTIONAL = defs.OpSchema.FormalParameterOption.Optional


class _Parameter(NamedTuple):
    """An input as a schema has it: the types it takes, and the letter that all inputs of one type share, or ''.

    The inputs of loops may be left out, as those of Scan were once.
    """

    types: frozenset[str]
    letter: str
    optional: bool


def check_types(node: OnnxNode, types: Mapping[str, TensorType]) -> None:
    """Raises ValueError for an input that is missing, of a type the operator never took, unlike one it must equal, and
    for one of more dimensions than NumPy broadcasts.

    `types` are those of the inputs by name. The newest schema of the operator decides: what an older one did not take
    yet, kernels compute all the same.
    """
    parameters, variadic = _parameters(node.op_type, node.domain)
    first: dict[str, tuple[str, np.dtype]] = {}
    for k, name in enumerate(node.inputs):
        if not (k < len(parameters) or variadic):
            continue
        parameter = parameters[min(k, len(parameters) - 1)]
        if not name and not parameter.optional:
            raise ValueError(f"input {k} is left out, which the operator needs")
        if name not in types:
            continue
        dtype, rank = types[name].dtype, types[name].rank
        if rank > MOST_DIMENSIONS:
            raise ValueError(f"input {k}, '{name}', of {rank} dimensions has more than {MOST_DIMENSIONS}: use fewer")
        if _written(dtype) not in parameter.types:
            raise ValueError(f"input {k}, '{name}', must be one of {', '.join(sorted(parameter.types))}")
        if parameter.letter:
            owner, other = first.setdefault(parameter.letter, (name, dtype))
            if other != dtype:
                raise ValueError(f"'{owner}' and '{name}' must have one element type")


@cache
def _parameters(op_type: str, domain: str) -> tuple[tuple[_Parameter, ...], bool]:
    """The inputs of an operator's newest schema, and whether the last may be repeated."""
    schema: Any = defs.get_schema(op_type, domain=domain)
    letters = {c.type_param_str for c in schema.type_constraints}
    found = tuple(
        _Parameter(
            frozenset(p.types),
            p.type_str if p.type_str in letters and p.is_homogeneous else "",
            p.option == OPTIONAL or not p.is_homogeneous,
        )
        for p in schema.inputs
    )
    return found, bool(found) and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic


@cache
def _written(dtype: np.dtype) -> str:
    """An element type as schemas write it."""
    number = TensorProto.STRING if dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(dtype)
    return f"tensor({TensorProto.DataType.Name(number).lower()})"
