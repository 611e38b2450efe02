"""What DequantizeLinear and QuantizeLinear say of tensors, for operators that compute with the integers themselves.

Signed bytes get an unsigned twin, 128 more, since products multiply unsigned by signed bytes: its zero point is that
much more too, so it stands for the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np

from brickrt.graph.builder import Builder, Quantized
from brickrt.graph.builders.scalar import F32, add, like, maximum, minimum, rounded
from brickrt.ops.base import Op
from brickrt.ops.expr import Expr, apply, arg, cast
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.move import Concat, Take, Transpose, View
from brickrt.ops.operators.pool import Pool

U8, S8, S32 = (np.dtype(t) for t in (np.uint8, np.int8, np.int32))
HALF_BYTES = (np.dtype(ml_dtypes.uint4), np.dtype(ml_dtypes.int4))
OFFSET = 128
"""From a signed byte to its unsigned twin."""


def flipped(x: Expr) -> Expr:
    """A signed byte as its unsigned twin, or the other way round: the highest bit is the other one."""
    source = cast(x, U8)
    return cast(apply("bitxor", source, like(source, OFFSET)), S8 if x.dtype == U8 else U8)


def unsigned(x: Expr, zero: int) -> Expr:
    """round(x) + zero as an unsigned byte, saturated."""
    value = rounded(x)
    value = add(value, like(value, zero)) if zero else value
    return cast(minimum(maximum(value, like(value, 0)), like(value, 2 * OFFSET - 1)), U8)


def unsigned_twin(b: Builder, name: str) -> str:
    """The unsigned bytes that stand for a tensor of bytes: itself, what it was made of, or a new tensor."""
    if b.type(name).dtype == U8:
        return b.resolve(name)
    known = b.twins.get(b.resolve(name))
    if known in b.types:
        return known
    twin = _moved_twin(b, b.resolve(name)) or b.emit(Map(flipped(arg(0, S8))), name, hint="unsigned")
    b.twins[b.resolve(name)] = twin
    return twin


def _moved_twin(b: Builder, name: str) -> str | None:
    """The twin of what moves or compares signed bytes that have twins, made of these; None for any other tensor."""
    writer = next((node for node in reversed(b.nodes) if node.output == name), None)
    if writer is None or not all(b.twins.get(source) in b.types for source in writer.inputs):
        return None
    op = writer.op
    if isinstance(op, Take):
        op = replace(op, fill=int(op.fill) + OFFSET)
    elif not keeps_values(op):
        return None
    return b.emit(op, *(b.twins[source] for source in writer.inputs), hint="unsigned")


def keeps_values(op: Op) -> bool:
    """Whether every element of the output is one of the inputs'."""
    if isinstance(op, Take):
        return all(table is None or min(table, default=0) >= 0 for table in op.tables)
    return isinstance(op, View | Transpose | Concat) or (isinstance(op, Pool) and op.kind == "max")


def signed_result(b: Builder, name: str, twin: str) -> str:
    """The signed bytes that `twin` stands for, as the tensor that ONNX calls `name`."""
    b.twins[name] = twin
    return b.emit(Map(flipped(arg(0, U8))), twin, hint="signed")


def note_dequantized(b: Builder, output: str, inputs: tuple[str, ...], axis: int, blocked: bool) -> None:
    """Remembers what DequantizeLinear makes of `inputs`, where scale and zero point are known and not by block."""
    x, scale, *rest = inputs
    factor, zero = b.known(scale), b.known(rest[0]) if rest and rest[0] else np.zeros((), b.type(x).dtype)
    if (
        blocked
        or factor is None
        or zero is None
        or factor.dtype != F32
        or factor.ndim > 1
        or not 0 < zero.size <= factor.size
    ):
        return
    if b.type(x).dtype in (U8, S8, S32, *HALF_BYTES) and np.isfinite(factor).all() and (factor > 0).all():
        b.quantized[output] = Quantized(b.resolve(x), factor.reshape(-1), zero.reshape(-1).astype(np.int64), axis)


def note_parameters(b: Builder, x: str, scale: str, zero: str, axis: int = 0) -> str:
    """Remembers `x` with the parameters that a quantized operator has for it, as `note_dequantized`; the name under
    which it does."""
    name = f"{b.resolve(x)}·{b.resolve(scale)}·{b.resolve(zero)}"
    note_dequantized(b, name, (x, scale, zero), axis, blocked=False)
    return name


def note_moved(b: Builder, source: str, target: str, move: Callable[[str], str]) -> None:
    """Remembers that `target` is what `move` makes of `source`: so it does with the bytes that this stands for."""
    known = as_bytes(b, source)
    if known and b.resolve(source) != b.resolve(target):
        twin, scale, zero = known
        b.quantized[b.resolve(target)] = Quantized(move(twin), np.array([scale], F32), np.array([zero], np.int64), 0)


def as_bytes(b: Builder, name: str) -> tuple[str, float, int] | None:
    """Unsigned bytes, scale and zero point that a tensor stands for, alike for all its elements; None where it is no
    such tensor."""
    found = b.quantized.get(b.resolve(name))
    if found is None or found.scale.size > 1 or found.tensor not in b.types or b.known(found.tensor) is not None:
        return None
    kind = b.type(found.tensor).dtype
    if kind not in (U8, S8):
        return None
    zero = int(found.zero[0]) + (OFFSET if kind == S8 else 0)
    return unsigned_twin(b, found.tensor), float(found.scale[0]), zero


def as_bias(b: Builder, name: str, scale: np.ndarray) -> np.ndarray | None:
    """The integers of a constant bias whose unit is `scale`; None where it has another one."""
    found = b.quantized.get(b.resolve(name))
    values = None if found is None else b.known(found.tensor)
    if found is None or values is None or values.dtype != S32 or values.ndim != 1 or found.zero.any():
        return None
    same = np.allclose(found.scale, scale, rtol=1e-6, atol=0) if found.scale.size in (1, scale.size) else False
    return values.astype(np.int64) if same else None
