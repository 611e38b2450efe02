"""Shapes for inputs whose shape is open or partly open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from brickrt.cli.terminal.text import note
from brickrt.graph.errors import BrickError, InputError
from brickrt.graph.onnx_import.check_inputs import describe
from brickrt.graph.onnx_import.source import SourceGraph
from brickrt.graph.onnx_import.tensor_info import TensorInfo

Shape = tuple[int, ...]


def concrete_shapes(source: SourceGraph, asked: Mapping[str, Shape]) -> tuple[dict[str, Shape], list[str]]:
    """Shapes of the model's tensor inputs, and the open dimensions, as `x[0] (N)`, for which 1 was taken.

    A symbol that `asked` binds in one input is bound in all.
    """
    symbols: dict[str, tuple[int, str]] = {}
    for name, shape in asked.items():
        if name not in source.inputs:
            known = ", ".join(f"'{n}'" for n in source.inputs) or "none"
            raise InputError(f"--shape: the model has no input '{name}': its inputs are {known}")
        _bind(name, source.inputs[name], shape, symbols)
    shapes: dict[str, Shape] = {}
    assumed: list[str] = []
    for name, info in source.inputs.items():
        if info.dtype is not None:
            shapes[name] = asked[name] if name in asked else _filled(name, info, symbols, assumed)
    return shapes, assumed


@contextmanager
def assuming(assumed: list[str]) -> Iterator[None]:
    """Errors raised inside also say which open dimensions are taken to be 1, as that may be the cause."""
    try:
        yield
    except BrickError as e:
        if not assumed:
            raise
        raise InputError(f"{e} (open dimensions are 1: {', '.join(assumed)}: give --shape for others)") from e


def note_assumed(assumed: list[str]) -> None:
    """Says for which dimensions 1 was taken. Call it once nothing can fail: an error is to be the only line."""
    if assumed:
        note(f"open dimensions are 1: {', '.join(assumed)}: give --shape for others")


def _bind(name: str, info: TensorInfo, shape: Shape, symbols: dict[str, tuple[int, str]]) -> None:
    if info.shape is None:
        return
    text = ",".join(map(str, shape))
    if len(shape) != len(info.shape):
        raise InputError(f"--shape {name}={text}: the model takes {describe(info)}: give {len(info.shape)} numbers")
    for axis, (dim, extent) in enumerate(zip(info.shape, shape)):
        if isinstance(dim, int) and dim != extent:
            other = f"dimension {axis} must be {dim}; a model that is exported with open sizes takes others"
            raise InputError(f"--shape {name}={text}: the model takes {describe(info)}: {other}")
        if isinstance(dim, str):
            first, owner = symbols.setdefault(dim, (extent, name))
            if first != extent:
                raise InputError(
                    f"--shape {name}={text}: '{dim}' is {extent} here and {first} in '{owner}': give both the same"
                )


def _filled(name: str, info: TensorInfo, symbols: Mapping[str, tuple[int, str]], assumed: list[str]) -> Shape:
    if info.shape is None:
        raise InputError(f"input '{name}' may have any rank: give --shape {name}=1,3,224,224 or what it should be")
    shape = []
    for axis, dim in enumerate(info.shape):
        if isinstance(dim, int):
            shape.append(dim)
        elif isinstance(dim, str) and dim in symbols:
            shape.append(symbols[dim][0])
        else:
            assumed.append(f"{name}[{axis}]" + (f" ({dim})" if dim else ""))
            shape.append(1)
    return tuple(shape)
