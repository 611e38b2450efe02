"""Sizes near those of an image that a network takes: many halve images several times, and join the halves again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from brickrt.cli.terminal.text import extents_text
from brickrt.graph.errors import BrickError, InputError
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.specialize.stages import first_stage
from brickrt.ops.types import TensorType
from brickrt.runtime.compiled.compiled_source import CompiledSource

STEPS = (2, 4, 8, 16, 32, 64)
"""Of what open sizes are to be multiples."""

WINDOWS = "--window N for windows of the image"
RESIZED = "--resize HxW for pictures, "

Types = Mapping[str, TensorType]


def types_of(arrays: Mapping[str, np.ndarray]) -> Types | None:
    """The types of arrays; None where one is none."""
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        return None
    return {name: TensorType(array.shape, array.dtype) for name, array in arrays.items()}


@contextmanager
def telling_sizes(source: SourceGraph, given: Callable[[], Types | None], others: str = RESIZED) -> Iterator[None]:
    """An error that the network does not take images of this size also says the next larger one that it takes. `given`
    tells the types of inputs, None where they are not known, and `others` what brings images to another size beside
    windows."""
    try:
        yield
    except InputError:  # the arrays are not what the model declares
        raise
    except BrickError as e:
        types = None if isinstance(source, CompiledSource) else given()
        found = next_sizes(source, types) if types and not takes(source, types) else None
        if types is None or found is None:
            raise
        step, larger = found
        sizes = ", ".join(f"{name} {extents_text(kind.shape)}" for name, kind in larger.items() if kind != types[name])
        said = str(e).rstrip(".")
        raise InputError(f"{said}; it takes {sizes}, multiples of {step}: {others}{WINDOWS}, or another file") from e


def next_sizes(source: SourceGraph, types: Types) -> tuple[int, Types] | None:
    """The least step whose multiples, the next at least as large as the open sizes, the network takes; and the types of
    inputs of these sizes. None where there is none."""
    tried = types
    for step in STEPS:
        larger = {name: _rounded(source, name, kind, step) for name, kind in types.items()}
        if larger != tried and takes(source, larger):
            return step, larger
        tried = larger
    return None


def takes(source: SourceGraph, types: Types) -> bool:
    """Whether the network is known to take inputs of these types: its first stage, that is, up to nodes on the host."""
    from brickrt.graph.specialize.specialize import specialize  # here: few runs need it, and compiled files never

    try:
        return not specialize(first_stage(source), types, {}).need_values
    except BrickError:
        return False


def _rounded(source: SourceGraph, name: str, kind: TensorType, step: int) -> TensorType:
    """The type with open sizes, behind the batch, rounded up to multiples of `step`."""
    info = source.inputs.get(name)
    if info is None or info.shape is None or len(info.shape) < 3:
        return kind
    extents = [
        extent if axis == 0 or isinstance(dim, int) else -(-extent // step) * step
        for axis, (dim, extent) in enumerate(zip(info.shape, kind.shape, strict=True))
    ]
    return TensorType(tuple(extents), kind.dtype)
